// A folder that exists as long as a test needs it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace graft::testing {

class TemporaryFolder {
 public:
  /// Makes an empty folder whose name tells the running test.
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Returns the names in a folder, sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// Returns the bytes of a file.
std::string read_file(const std::filesystem::path& file);

/// Writes a file that holds `bytes`.
void write_file(const std::filesystem::path& file, const std::string& bytes);

}  // namespace graft::testing
