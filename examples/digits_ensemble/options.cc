#include "examples/digits_ensemble/options.h"

#include <absl/flags/flag.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <system_error>

#include "examples/digits_ensemble/flags.h"

ABSL_FLAG(int64_t, members, 16, "how many networks the ensemble has");
ABSL_FLAG(int64_t, width, 0, "size of both hidden layers; 0 stands for 128 and 64");
ABSL_FLAG(int64_t, epochs, 60, "stop after so many epochs at the latest");
ABSL_FLAG(int64_t, batch, 32, "digits of one training step, per member");
ABSL_FLAG(int64_t, seed, 0, "fixes the split, the initial values and the batches");
ABSL_FLAG(int64_t, threads, 1, "threads of LibTorch");
ABSL_FLAG(std::string, data, "", "the CSV file with the digits; empty: the one that comes with the example");
ABSL_FLAG(std::string, out, "digits_ensemble_out", "the folder to write to");
ABSL_FLAG(bool, loop, false, "also train the same members one by one, and compare");
ABSL_FLAG(bool, help, false, "show these lines and end");

namespace digits_ensemble {
namespace {

int64_t in_range(const absl::Flag<int64_t>& flag, int64_t first, int64_t last) {
  const int64_t value = absl::GetFlag(flag);
  TORCH_CHECK_VALUE(value >= first && value <= last, "--", std::string(flag.Name()), "=", value, ": expected ", first,
                    " to ", last);
  return value;
}

/// Reads `path` as the user wrote it: relative to where the user is, which `bazel run` tells.
std::filesystem::path users_path(const std::filesystem::path& path) {
  const char* folder = std::getenv("BUILD_WORKING_DIRECTORY");
  return folder == nullptr ? path : folder / path;
}

/// The file that comes with the example: where Bazel starts the program, or beside the program's file.
std::filesystem::path bundled_data(const std::string& program) {
  const std::filesystem::path file = "examples/data/digits.csv";
  return std::filesystem::exists(file) ? file : std::filesystem::path(program + ".runfiles") / "graft" / file;
}

std::filesystem::path data_path(const std::string& program) {
  const std::string path = absl::GetFlag(FLAGS_data);
  return path.empty() ? bundled_data(program) : users_path(path);
}

/// Says whether files can be written to `folder`, which need not exist yet. Changes nothing.
bool is_writable(std::filesystem::path folder) {
  std::error_code unused;
  while (!std::filesystem::exists(folder, unused) && folder.has_relative_path()) folder = folder.parent_path();
  return std::filesystem::is_directory(folder, unused) && ::access(folder.c_str(), W_OK | X_OK) == 0;
}

std::filesystem::path out_path() {
  const std::string path = absl::GetFlag(FLAGS_out);
  TORCH_CHECK_VALUE(!path.empty(), "--out=: expected a folder");
  std::filesystem::path folder = users_path(path);
  TORCH_CHECK_VALUE(!std::filesystem::exists(folder) || std::filesystem::is_directory(folder), "--out=", path,
                    ": this is a file, expected a folder");
  TORCH_CHECK_VALUE(is_writable(std::filesystem::absolute(folder)), "--out=", path, ": nothing can be written there");
  return folder;
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv) {
  read_flags(argc, argv);
  if (absl::GetFlag(FLAGS_help)) return std::nullopt;

  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return Options{
      .members = in_range(FLAGS_members, 1, 4096),
      .width = in_range(FLAGS_width, 0, 4096),
      .epochs = in_range(FLAGS_epochs, 1, kMost),
      .batch = in_range(FLAGS_batch, 1, kMost),
      .seed = static_cast<uint64_t>(in_range(FLAGS_seed, 0, kMost)),
      .threads = static_cast<int>(in_range(FLAGS_threads, 1, 1024)),
      .data = data_path(argv[0]),
      .out = out_path(),
      .loop = absl::GetFlag(FLAGS_loop),
  };
}

}  // namespace digits_ensemble
