#include "tensordict/key_table.h"

#include <c10/util/Exception.h>

#include <mutex>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "tensordict/nested_key.h"

namespace graft {
namespace {

absl::string_view to_absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace

/// Where paths are, made when it is first asked for: many tables are only walked. All refers to the strings of the
/// table.
struct KeyTable::Index {
  /// Makes it whole if it is not. Several threads may ask at once.
  const Index& of(const std::deque<std::string>& paths) {
    std::call_once(is_made, [&] {
      leaves.reserve(paths.size());
      for (std::size_t i = 0; i < paths.size(); ++i) add(paths[i], i);
    });
    return *this;
  }

  void add(std::string_view path, std::size_t position) {
    leaves.emplace(to_absl(path), position);
    auto parent = parent_path(path);
    while (!parent.empty() && subtrees.insert(to_absl(parent)).second) parent = parent_path(parent);
  }

  std::once_flag is_made;
  absl::flat_hash_map<absl::string_view, std::size_t> leaves;
  absl::flat_hash_set<absl::string_view> subtrees;  // a subtree is the start of some path
};

KeyTable::KeyTable() : index_(std::make_unique<Index>()) {}

KeyTable::KeyTable(const KeyTable& other) : paths_(other.paths_), index_(std::make_unique<Index>()) {}

KeyTable::~KeyTable() = default;

std::optional<std::size_t> KeyTable::find(std::string_view path) const {
  const auto& leaves = index_->of(paths_).leaves;
  const auto found = leaves.find(to_absl(path));
  if (found == leaves.end()) return std::nullopt;
  return found->second;
}

bool KeyTable::is_subtree(std::string_view path) const { return index_->of(paths_).subtrees.contains(to_absl(path)); }

std::size_t KeyTable::insert(std::string_view path) {
  check_path(path);
  TORCH_CHECK_VALUE(!find(path), "TensorDict: there is a leaf \"", path, "\" already");
  TORCH_CHECK_VALUE(!is_subtree(path), "TensorDict: \"", path, "\" is a subtree, it cannot be a leaf as well");
  // Above a subtree there are subtrees alone.
  for (auto parent = parent_path(path); !parent.empty() && !is_subtree(parent); parent = parent_path(parent)) {
    TORCH_CHECK_VALUE(!find(parent), "TensorDict: \"", path, "\" cannot be set, because \"", parent, "\" is a leaf");
  }
  return append(path);
}

std::shared_ptr<const KeyTable> KeyTable::subset(const std::vector<std::size_t>& positions, std::size_t prefix) const {
  auto table = std::make_shared<KeyTable>();
  for (const std::size_t position : positions) {
    table->paths_.emplace_back(std::string_view(paths_[position]).substr(prefix));
  }
  return table;
}

std::size_t KeyTable::append(std::string_view path) {
  index_->of(paths_);
  const std::size_t position = paths_.size();
  index_->add(paths_.emplace_back(path), position);
  return position;
}

bool same_paths(const KeyTable& left, const KeyTable& right) {
  if (&left == &right) return true;
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left.path(i) != right.path(i) && !right.find(left.path(i))) return false;  // most have one order
  }
  return true;
}

}  // namespace graft
