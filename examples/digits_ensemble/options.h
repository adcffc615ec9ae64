// The command line of digits_ensemble.
#pragma once

#include <cstdint>
#include <filesystem>

namespace digits_ensemble {

struct Options {
  int64_t members;
  int64_t width;  // 0: hidden layers of 128 and 64
  int64_t epochs;
  int64_t batch;
  uint64_t seed;
  int threads;
  std::filesystem::path data;
  std::filesystem::path out;
  bool loop;
};

/// Reads the command line. An unknown flag, or one whose value is no number, ends the program with one line and exit
/// code 1 (Abseil's habit). Relative paths are the user's, also under `bazel run`, which starts programs elsewhere.
/// \throws c10::ValueError for a value out of range and for an argument that is no flag.
Options parse_options(int argc, char** argv);

}  // namespace digits_ensemble
