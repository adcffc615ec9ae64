// A way through a tree of folders that cannot leave it, and whose depth is limited by the file system alone.
//
//   FolderWalk walk("load_memmap", folder);
//   walk.down("encoder");                        // one name at a time; symbolic links are not followed
//   Descriptor file = walk.open("w.memmap", O_RDONLY);
//   walk.up();
//
// One folder is open at a time, so a tree may be deeper than the longest path that the system takes, and than a process
// may have files open. Every error names the call and the whole path.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensordict/internal/descriptor.h"

namespace graft::internal {

class FolderWalk {
 public:
  /// Starts in `folder`, which may be named through symbolic links. Messages start with `call`, and name the folder
  /// `shown`.
  FolderWalk(std::string call, const std::string& folder, std::string shown);
  FolderWalk(std::string call, const std::string& folder) : FolderWalk(std::move(call), folder, folder) {}

  /// Goes into a folder here. `name` must be one name.
  void down(const std::string& name);

  /// Goes back to the folder that `down` came from.
  void up();

  std::size_t depth() const { return ends_.size(); }

  /// Makes a folder here.
  void make_folder(const std::string& name, mode_t mode) const;

  /// Opens a file here, with the flags of open(2). \throws c10::Error if it is a symbolic link, or no regular file.
  Descriptor open(const std::string& name, int flags, mode_t mode = 0) const;

  bool has(const std::string& name) const;

  struct Entry {
    std::string name;
    bool is_folder;
  };
  std::vector<Entry> entries() const;

  /// Removes a file or an empty folder here.
  void remove(const Entry& entry) const;

  /// Returns how the folder here is called, and how a file in it is.
  const std::string& path() const { return path_; }
  std::string path(std::string_view name) const;

  int descriptor() const { return here_.number(); }

  /// Throws a c10::Error that says what could not be done with `name`, and why by errno.
  [[noreturn]] void fail(std::string_view what, const std::string& name) const;

 private:
  std::string call_;
  std::string path_;
  std::vector<std::size_t> ends_;  // of the paths of the folders around
  Descriptor here_;
};

/// Removes all that is in the folder where `walk` stands, and comes back there.
void remove_contents(FolderWalk& walk);

}  // namespace graft::internal
