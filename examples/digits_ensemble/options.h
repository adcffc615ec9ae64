// The command line of digits_ensemble.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

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

/// Reads the command line; returns nothing if it asks for --help. Relative paths are the user's, also under `bazel
/// run`, which starts programs elsewhere. Writes nothing. \throws c10::ValueError for the first argument that is no
/// flag or lacks its value, for a value out of range, and for
///     a folder that cannot be written to.
std::optional<Options> parse_options(int argc, char** argv);

}  // namespace digits_ensemble
