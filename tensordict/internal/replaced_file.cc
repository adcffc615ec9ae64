#include "tensordict/internal/replaced_file.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "tensordict/internal/descriptor.h"

namespace graft::internal {
namespace {

constexpr std::size_t kMaxWrite = std::size_t{1} << 30;  // Linux takes less than 2 GiB at once

/// Checks the result of a system call.
void check_done(std::string_view call, bool done, const char* what, const std::string& file) {
  TORCH_CHECK(done, call, ": cannot ", what, " \"", file, "\": ", std::strerror(errno));
}

/// Asks the system to keep the renaming of a file or folder too. Some file systems cannot, which is no error.
void sync_folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.is_open()) ::fsync(descriptor.number());
}

/// Returns the absolute path of the folder, without symbolic links, and makes the folders above it.
std::string prepared_path(std::string_view call, const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::weakly_canonical(folder, error);
  if (!error && path.filename().empty()) path = path.parent_path();  // "folder/"
  if (!error) std::filesystem::create_directories(path.parent_path(), error);
  TORCH_CHECK(!error, call, ": cannot write \"", folder, "\": ", error.message());
  TORCH_CHECK(!folder.empty() && path.has_filename(), call, ": \"", folder, "\" cannot be replaced");
  return path;
}

/// Makes an empty folder beside `path` and returns its path.
std::string make_aside(std::string_view call, const std::string& path, const std::string& shown) {
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::ostringstream aside;
    aside << path << "." << std::hex << random();
    if (::mkdir(aside.str().c_str(), 0777) == 0) return aside.str();
    check_done(call, errno == EEXIST, "write beside", shown);
  }
  TORCH_CHECK(false, call, ": found no free name beside \"", shown, "\"");
}

/// Gives the folder `aside` the access rights of the folder that it will replace, if there is one.
void copy_mode(std::string_view call, const std::string& path, const std::string& aside, const std::string& shown) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return;
  check_done(call, ::chmod(aside.c_str(), status.st_mode & 07777) == 0, "set the mode of", shown);
}

/// Removes a folder as far as it can be removed.
void remove_folder(const std::string& folder) {
  try {
    FolderWalk walk("remove", folder);
    remove_contents(walk);
    ::rmdir(folder.c_str());
  } catch (const c10::Error&) {  // what was asked for is done, or has failed with an error of its own
  }
}

/// Puts the folder `aside` in the place of `folder`. An old folder, if there is one, is then at `aside`.
void exchange(std::string_view call, const std::string& aside, const std::string& folder) {
  if (::renameat2(AT_FDCWD, aside.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno == ENOENT) {  // a new folder; rename does not replace what another process makes there meanwhile
    check_done(call, std::rename(aside.c_str(), folder.c_str()) == 0, "make", folder);
    return;
  }
  check_done(call, errno == EINVAL || errno == ENOSYS, "replace", folder);
  const std::string old = aside + ".old";
  check_done(call, std::rename(folder.c_str(), old.c_str()) == 0, "replace", folder);
  if (std::rename(aside.c_str(), folder.c_str()) != 0) {
    const int reason = std::exchange(errno, 0);
    std::rename(old.c_str(), folder.c_str());
    errno = reason;
    check_done(call, false, "replace", folder);
  }
  check_done(call, std::rename(old.c_str(), aside.c_str()) == 0, "remove the old", folder);
}

}  // namespace

void write_all(std::string_view call, int descriptor, const void* bytes, std::size_t size, const std::string& file) {
  const char* next = static_cast<const char*>(bytes);
  while (size > 0) {
    const ssize_t count = ::write(descriptor, next, std::min(size, kMaxWrite));
    if (count < 0 && errno == EINTR) continue;
    check_done(call, count >= 0, "write", file);
    next += count;
    size -= static_cast<std::size_t>(count);
  }
}

void replace_file(std::string_view call, const std::string& file, absl::FunctionRef<void(int descriptor)> write) {
  std::string aside = file + ".XXXXXX";
  Descriptor descriptor(::mkstemp(aside.data()));
  check_done(call, descriptor.is_open(), "write beside", file);
  absl::Cleanup remove_aside = [&] { ::unlink(aside.c_str()); };
  write(descriptor.number());
  check_done(call, ::fchmod(descriptor.number(), 0644) == 0, "set the mode of", file);  // mkstemp: the owner alone
  check_done(call, ::fsync(descriptor.number()) == 0, "write", file);
  check_done(call, descriptor.close(), "write", file);
  check_done(call, std::rename(aside.c_str(), file.c_str()) == 0, "replace", file);
  std::move(remove_aside).Cancel();
  sync_folder_of(file);
}

void replace_folder(std::string_view call, const std::string& folder, absl::FunctionRef<void(FolderWalk&)> write) {
  const std::string path = prepared_path(call, folder);
  const std::string aside = make_aside(call, path, folder);
  absl::Cleanup remove_aside = [&] { remove_folder(aside); };
  {
    FolderWalk walk(std::string(call), aside, /*shown=*/folder);
    write(walk);
    // One call for all files: a call for each takes 10 ms and more on many disks.
    check_done(call, ::syncfs(walk.descriptor()) == 0, "write", folder);
  }
  copy_mode(call, path, aside, folder);
  exchange(call, aside, path);
  sync_folder_of(path);
}

}  // namespace graft::internal
