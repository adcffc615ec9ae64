#include "tensordict/internal/folder_walk.h"

#include <c10/util/Exception.h>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace graft::internal {
namespace {

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

bool is_link(int folder, const std::string& name) {
  struct stat status;
  return ::fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
}

}  // namespace

FolderWalk::FolderWalk(std::string call, const std::string& folder, std::string shown)
    : call_(std::move(call)), path_(std::move(shown)), here_(::open(folder.c_str(), kFolderFlags)) {
  TORCH_CHECK(here_.is_open(), call_, ": cannot open the folder \"", path_, "\": ", std::strerror(errno));
}

void FolderWalk::down(const std::string& name) {
  Descriptor next(::openat(here_.number(), name.c_str(), kFolderFlags | O_NOFOLLOW));
  if (!next.is_open()) fail("open the folder", name);
  here_ = std::move(next);
  ends_.push_back(path_.size());
  path_ += "/" + name;
}

void FolderWalk::up() {
  Descriptor next(::openat(here_.number(), "..", kFolderFlags));
  if (!next.is_open()) fail("leave the folder", "..");
  here_ = std::move(next);
  path_.resize(ends_.back());
  ends_.pop_back();
}

void FolderWalk::make_folder(const std::string& name, mode_t mode) const {
  if (::mkdirat(here_.number(), name.c_str(), mode) != 0) fail("make the folder", name);
}

Descriptor FolderWalk::open(const std::string& name, int flags, mode_t mode) const {
  // O_NONBLOCK, so that a pipe of that name is an error and no endless wait.
  Descriptor file(::openat(here_.number(), name.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
  if (!file.is_open()) fail("open", name);
  struct stat status;
  if (::fstat(file.number(), &status) != 0) fail("look at", name);
  TORCH_CHECK(S_ISREG(status.st_mode), call_, ": \"", path(name), "\" is no file");
  return file;
}

bool FolderWalk::has(const std::string& name) const {
  struct stat status;
  return ::fstatat(here_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
}

std::vector<FolderWalk::Entry> FolderWalk::entries() const {
  const int copy = ::openat(here_.number(), ".", kFolderFlags);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(copy < 0 ? nullptr : ::fdopendir(copy), &::closedir);
  if (!folder) fail("list the folder", ".");
  std::vector<Entry> result;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat status;
    const int flags = AT_SYMLINK_NOFOLLOW;
    if (::fstatat(here_.number(), name.c_str(), &status, flags) != 0) fail("look at", name);
    result.push_back({name, S_ISDIR(status.st_mode)});
  }
  return result;
}

void FolderWalk::remove(const Entry& entry) const {
  if (::unlinkat(here_.number(), entry.name.c_str(), entry.is_folder ? AT_REMOVEDIR : 0) != 0) {
    fail("remove", entry.name);
  }
}

std::string FolderWalk::path(std::string_view name) const { return path_ + "/" + std::string(name); }

void FolderWalk::fail(std::string_view what, const std::string& name) const {
  const int reason = errno;
  const bool link = is_link(here_.number(), name);
  TORCH_CHECK(false, call_, ": cannot ", what, " \"", path(name),
              "\": ", link ? "a symbolic link, which is not followed" : std::strerror(reason));
}

void remove_contents(FolderWalk& walk) {
  const std::size_t top = walk.depth();
  std::vector<std::vector<FolderWalk::Entry>> levels;  // the folders that are left, of each level down to here
  const auto remove_files = [&] {
    levels.emplace_back();
    for (FolderWalk::Entry& entry : walk.entries()) {
      if (entry.is_folder) {
        levels.back().push_back(std::move(entry));
      } else {
        walk.remove(entry);
      }
    }
  };
  remove_files();
  while (true) {
    if (!levels.back().empty()) {
      walk.down(levels.back().back().name);
      remove_files();
    } else if (walk.depth() > top) {
      levels.pop_back();
      walk.up();
      walk.remove(levels.back().back());
      levels.back().pop_back();
    } else {
      return;
    }
  }
}

}  // namespace graft::internal
