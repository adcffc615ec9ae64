// Reading a command line into Abseil's flags, with faults as exceptions.
//
//   ABSL_FLAG(int64_t, members, 16, "how many networks the ensemble has");
//   read_flags(argc, argv);                                  // --members=8, --members 8
//   const int64_t members = absl::GetFlag(FLAGS_members);
//
// absl::ParseCommandLine ends the program by itself, after one line or two, and after --help with the exit code of a
// fault.
#pragma once

#include <ostream>

namespace digits_ensemble {

/// Sets the flags that the command line names, as `--name=value` or `--name value`; a bool is also set by `--name`.
/// \throws c10::ValueError for the first argument that is no flag, lacks its value or has one of another type.
void read_flags(int argc, char** argv);

/// Prints a line for each flag of the program.
void print_flags(std::ostream& out);

}  // namespace digits_ensemble
