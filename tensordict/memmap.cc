#include "tensordict/memmap.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tensordict/internal/folder_walk.h"
#include "tensordict/internal/mapped_file.h"
#include "tensordict/internal/memmap_metadata.h"
#include "tensordict/internal/replaced_file.h"
#include "tensordict/internal/sizes.h"
#include "tensordict/nested_key.h"

namespace graft {
namespace {

using internal::Descriptor;
using internal::FolderWalk;
using internal::MemmapEntry;
using internal::MemmapMetadata;
using internal::starts_with;

constexpr const char* kLeafEnd = ".memmap";

/// Says why a leaf cannot be written, or nothing.
std::string obstacle(const std::string& path, const at::Tensor& value) {
  if (!value.has_storage() || value.is_meta() || value.is_nested())
    return value.toString() + ", without data of its own";
  if (internal::dtype_name(value.scalar_type()).empty()) return std::string("dtype ") + toString(value.scalar_type());
  if (!internal::is_utf8(path)) return "its name is not UTF-8";
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find('.'));
    if (internal::is_reserved_key(name)) return "the format has no place for the name \"" + std::string(name) + "\"";
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
  }
  return "";
}

void check_leaves(const char* call, const TensorDict& tree) {
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    const std::string problem = obstacle(path, value);
    if (!problem.empty()) problems << "\n  \"" << path << "\": " << problem;
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves cannot be written, and nothing is:", text);
}

// --- A tree as folders

/// A folder to be: what is in it, in order.
struct Part {
  MemmapMetadata metadata;
  std::vector<std::size_t> children;  // of each entry, the position of the leaf or of the part
};

/// Returns the folders of a tree, each after the one around it.
std::vector<Part> to_parts(const TensorDict& tree) {
  std::vector<Part> parts(1);
  parts[0].metadata.batch_size = tree.batch_size();
  absl::flat_hash_map<std::pair<std::size_t, std::string_view>, std::size_t> known;  // by the part around, and the name
  const auto part_at = [&](std::size_t around, std::string_view name, std::string_view path) {
    const auto [found, is_new] = known.try_emplace({around, name}, parts.size());
    if (is_new) {
      parts[around].metadata.entries.push_back({.key = std::string(name), .is_part = true});
      parts[around].children.push_back(parts.size());
      const auto sizes = tree.nested_sizes().parts().find(path);
      const bool has_own = sizes != tree.nested_sizes().parts().end();
      std::vector<int64_t> batch_size =
          has_own ? internal::joined(tree.batch_size(), sizes->second) : parts[around].metadata.batch_size;
      parts.emplace_back().metadata.batch_size = std::move(batch_size);
    }
    return found->second;
  };
  std::size_t position = 0;
  for (const auto& [path, value] : tree.leaves()) {
    const std::string_view whole = path;
    std::size_t part = 0;
    std::size_t begin = 0;
    for (std::size_t dot = whole.find('.'); dot != whole.npos; dot = whole.find('.', begin)) {
      part = part_at(part, whole.substr(begin, dot - begin), whole.substr(0, dot));
      begin = dot + 1;
    }
    parts[part].metadata.entries.push_back({.key = path.substr(begin),
                                            .shape = value.sizes().vec(),
                                            .dtype = value.scalar_type(),
                                            .device = value.device().str()});
    parts[part].children.push_back(position++);
  }
  return parts;
}

// --- Saving

/// What is put into the file of a leaf.
enum class Content { kValues, kZeros };

/// Gives the file its length, and room on the disk if the file system can promise it.
void reserve(const FolderWalk& walk, int descriptor, std::size_t bytes, const std::string& name) {
  if (::fallocate(descriptor, 0, 0, static_cast<off_t>(bytes)) == 0) return;
  const bool can_promise = errno != EOPNOTSUPP && errno != ENOSYS;
  if (can_promise || ::ftruncate(descriptor, static_cast<off_t>(bytes)) != 0) walk.fail("write", name);
}

/// Writes a leaf to a new file and returns it mapped.
at::Tensor write_leaf(const char* call, const FolderWalk& walk, const MemmapEntry& entry, const at::Tensor& value,
                      Content content) {
  const auto map = [&](int descriptor) {
    return internal::map_file(descriptor, entry.shape, entry.dtype, internal::Mapping::kShared);
  };
  if (entry.nbytes() == 0) return map(-1);  // as in Python, there is no file for nothing
  const std::string name = internal::encoded_key(entry.key) + kLeafEnd;
  Descriptor file = walk.open(name, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (content == Content::kZeros) {
    reserve(walk, file.number(), entry.nbytes(), name);
  } else {
    const at::Tensor data = value.detach().resolve_conj().resolve_neg().cpu().contiguous();
    internal::write_all(call, file.number(), data.const_data_ptr(), data.nbytes(), walk.path(name));
  }
  return map(file.number());
}

void write_metadata(const char* call, const FolderWalk& walk, const MemmapMetadata& metadata) {
  Descriptor file = walk.open(internal::kMetadataFile, O_WRONLY | O_CREAT | O_EXCL, 0666);
  const std::string text = to_json(metadata);
  internal::write_all(call, file.number(), text.data(), text.size(), walk.path(internal::kMetadataFile));
  if (!file.close()) walk.fail("write", internal::kMetadataFile);
}

/// Writes all parts, the walk standing in an empty folder, and returns the leaves mapped.
std::vector<at::Tensor> write_parts(const char* call, FolderWalk& walk, const std::vector<Part>& parts,
                                    const TensorDict& tree, Content content) {
  struct Level {
    const Part* part;
    std::size_t next;  // the entry that comes next
  };
  std::vector<Level> levels = {{&parts[0], 0}};
  std::vector<at::Tensor> mapped(tree.size());
  while (true) {
    const Part& part = *levels.back().part;
    const std::size_t next = levels.back().next++;
    if (next == part.children.size()) {
      write_metadata(call, walk, part.metadata);
      levels.pop_back();
      if (levels.empty()) return mapped;
      walk.up();
      continue;
    }
    const MemmapEntry& entry = part.metadata.entries[next];
    const std::size_t child = part.children[next];
    if (entry.is_part) {
      const std::string name = internal::encoded_key(entry.key);
      walk.make_folder(name, 0777);
      walk.down(name);
      levels.push_back({&parts[child], 0});
    } else {
      mapped[child] = write_leaf(call, walk, entry, tree.values()[child], content);
    }
  }
}

bool ends_with(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

/// Checks that what is to be replaced is a saved tree, so that nothing else is lost.
void check_replaceable(const char* call, const std::string& folder, const MemmapOptions& options) {
  std::error_code error;
  if (!std::filesystem::exists(folder, error)) return;
  FolderWalk walk(call, folder);
  std::vector<std::vector<std::string>> levels;  // the folders that are left, of each level
  const auto look = [&] {
    levels.emplace_back();
    for (const FolderWalk::Entry& entry : walk.entries()) {
      if (entry.is_folder) levels.back().push_back(entry.name);
      const bool is_known = entry.is_folder || entry.name == internal::kMetadataFile || ends_with(entry.name, kLeafEnd);
      TORCH_CHECK(is_known, call, ": \"", walk.path(entry.name), "\" is no part of a saved tree, and would be lost; ",
                  "the folder is as before");
    }
  };
  if (walk.entries().empty()) return;
  TORCH_CHECK(options.existsok, call, ": \"", folder, "\" is not empty, and existsok is false");
  TORCH_CHECK(walk.has(internal::kMetadataFile), call, ": \"", folder, "\" holds no saved tree (there is no ",
              internal::kMetadataFile, "), and would be lost; the folder is as before");
  look();
  while (!levels.empty()) {
    if (!levels.back().empty()) {
      walk.down(levels.back().back());
      levels.back().pop_back();
      look();
    } else {
      levels.pop_back();
      if (!levels.empty()) walk.up();
    }
  }
}

// --- Loading

/// Returns the name that something has here; Python did not encode names once, and finds such ones too.
std::string stored_name(const FolderWalk& walk, const std::string& key, const char* end) {
  std::string name = internal::encoded_key(key) + end;
  const std::string plain = key + end;
  const bool stays_here = plain != "." && plain != ".." && plain.find_first_of(std::string("/\0", 2)) == plain.npos;
  return !walk.has(name) && stays_here && walk.has(plain) ? plain : name;
}

/// Maps the file of a leaf, or says what is wrong with it.
at::Tensor map_leaf(const char* call, const FolderWalk& walk, const MemmapEntry& entry, bool read_only) {
  const std::string name = stored_name(walk, entry.key, kLeafEnd);
  const std::size_t bytes = entry.nbytes();
  if (bytes == 0 && !walk.has(name))
    return internal::map_file(-1, entry.shape, entry.dtype, internal::Mapping::kPrivate);
  const Descriptor file = walk.open(name, read_only ? O_RDONLY : O_RDWR);
  struct stat status;
  if (::fstat(file.number(), &status) != 0) walk.fail("look at", name);
  TORCH_CHECK(static_cast<std::size_t>(status.st_size) == bytes, call, ": \"", walk.path(name), "\" has ",
              status.st_size, " bytes, expected ", bytes, " for leaf \"", entry.key, "\", ",
              internal::dtype_name(entry.dtype), " of shape ", at::IntArrayRef(entry.shape));
  try {
    return internal::map_file(file.number(), entry.shape, entry.dtype,
                              read_only ? internal::Mapping::kPrivate : internal::Mapping::kShared);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, call, ": cannot map \"", walk.path(name), "\": ", error.what_without_backtrace());
  }
}

MemmapMetadata read_metadata(const char* call, const FolderWalk& walk) {
  const Descriptor file = walk.open(internal::kMetadataFile, O_RDONLY);
  std::string text;
  std::vector<char> buffer(1 << 16);
  while (true) {
    const ssize_t count = ::read(file.number(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) walk.fail("read", internal::kMetadataFile);
    if (count == 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return internal::from_json(call, text, walk.path(internal::kMetadataFile));
}

/// Reads all folders, the outermost first.
class Loader {
 public:
  Loader(const char* call, const std::string& folder, bool read_only)
      : call_(call), walk_(call, folder), read_only_(read_only) {}

  TensorDict load() {
    enter("");
    batch_size_ = levels_.back().metadata.batch_size;
    while (!levels_.empty()) {
      Level& level = levels_.back();
      if (level.next == level.metadata.entries.size()) {
        leave();
        continue;
      }
      const MemmapEntry& entry = level.metadata.entries[level.next++];
      if (entry.is_part) {
        go_down(entry.key);
      } else {
        add_leaf(entry, level.metadata.batch_size);
      }
    }
    return tree();
  }

 private:
  struct Level {
    MemmapMetadata metadata;
    std::size_t next;         // the entry that comes next
    std::size_t path_length;  // of the part around
  };

  void enter(const std::string& key) {
    MemmapMetadata metadata = read_metadata(call_, walk_);
    const std::size_t path_length = path_.size();
    if (!levels_.empty()) {
      const std::vector<int64_t>& around = levels_.back().metadata.batch_size;
      TORCH_CHECK(starts_with(metadata.batch_size, around), call_, ": \"", walk_.path(internal::kMetadataFile),
                  "\": \"shape\" is ", at::IntArrayRef(metadata.batch_size), ", expected to start with that of the ",
                  "folder around, ", at::IntArrayRef(around));
      path_ = join_path(path_, key);
      if (metadata.batch_size.size() > around.size()) note_sizes(metadata.batch_size);
    }
    levels_.push_back({std::move(metadata), 0, path_length});
  }

  void leave() {
    path_.resize(levels_.back().path_length);
    levels_.pop_back();
    if (!levels_.empty()) walk_.up();
  }

  void go_down(const std::string& key) {
    check_key(key);
    walk_.down(stored_name(walk_, key, ""));
    enter(key);
  }

  void note_sizes(const std::vector<int64_t>& batch_size) {
    sizes_.emplace_back(path_, std::vector<int64_t>(batch_size.begin() + batch_size_.size(), batch_size.end()));
  }

  void check_key(const std::string& key) const {
    try {
      check_path(key);
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, call_, ": \"", walk_.path(internal::kMetadataFile), "\": entry \"", key,
                  "\" cannot be read: ", error.what_without_backtrace());
    }
  }

  void add_leaf(const MemmapEntry& entry, const std::vector<int64_t>& batch_size) {
    check_key(entry.key);
    TORCH_CHECK(starts_with(entry.shape, batch_size), call_, ": \"", walk_.path(internal::kMetadataFile),
                "\": entry \"", entry.key, "\" has shape ", at::IntArrayRef(entry.shape), ", expected to start with ",
                at::IntArrayRef(batch_size));
    at::Tensor value = map_leaf(call_, walk_, entry, read_only_);
    try {
      keys_->insert(join_path(path_, entry.key));
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, call_, ": \"", walk_.path(internal::kMetadataFile), "\": entry \"", entry.key,
                  "\" clashes with another: ", error.what_without_backtrace());
    }
    values_.push_back(std::move(value));
  }

  TensorDict tree() {
    NestedSizes nested;
    for (const auto& [part, sizes] : sizes_) {
      if (keys_->is_subtree(part)) nested.set(part, sizes, {});
    }
    try {
      return TensorDict(std::move(keys_), std::move(values_), std::move(batch_size_), std::move(nested));
    } catch (const c10::Error& error) {  // of keys with dots, whose parts are elsewhere
      TORCH_CHECK(false, call_, ": \"", walk_.path(internal::kMetadataFile), "\": ", error.what_without_backtrace());
    }
  }

  const char* call_;
  FolderWalk walk_;
  bool read_only_;
  std::string path_;  // of the part that is being read
  std::vector<Level> levels_;
  std::vector<int64_t> batch_size_;
  std::shared_ptr<KeyTable> keys_ = std::make_shared<KeyTable>();
  std::vector<at::Tensor> values_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> sizes_;  // batch dims of parts beyond the tree's
};

TensorDict save_folder(const char* call, const TensorDict& tree, const std::string& folder,
                       const MemmapOptions& options, Content content) {
  check_leaves(call, tree);
  check_replaceable(call, folder, options);
  const std::vector<Part> parts = to_parts(tree);
  std::vector<at::Tensor> mapped;
  internal::replace_folder(call, folder,
                           [&](FolderWalk& walk) { mapped = write_parts(call, walk, parts, tree, content); });
  return tree.with_values(std::move(mapped)).lock_();
}

}  // namespace

TensorDict memmap(const TensorDict& tree, const std::string& folder, const MemmapOptions& options) {
  return save_folder("memmap", tree, folder, options, Content::kValues);
}

TensorDict memmap_like(const TensorDict& tree, const std::string& folder, const MemmapOptions& options) {
  return save_folder("memmap_like", tree, folder, options, Content::kZeros);
}

TensorDict load_memmap(const std::string& folder, const LoadMemmapOptions& options) {
  return Loader("load_memmap", folder, options.read_only).load();
}

}  // namespace graft
