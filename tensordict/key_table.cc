#include "tensordict/key_table.h"

#include <c10/util/Exception.h>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "tensordict/nested_key.h"

namespace graft {
namespace {

absl::string_view to_absl(std::string_view text) { return {text.data(), text.size()}; }

/// Calls `visit` with every proper prefix of `path` that ends before a dot, shortest first.
template <typename Visit>
void for_each_parent(std::string_view path, Visit visit) {
  for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
    visit(path.substr(0, dot));
  }
}

}  // namespace

struct KeyTable::Index {
  absl::flat_hash_map<absl::string_view, std::size_t> leaves;
  absl::flat_hash_map<std::string, std::size_t> subtrees;  // number of leaves below each inner node
};

KeyTable::KeyTable() : index_(std::make_unique<Index>()) {}

KeyTable::KeyTable(const KeyTable& other) : paths_(other.paths_), index_(std::make_unique<Index>()) {
  index_->subtrees = other.index_->subtrees;
  index_->leaves.reserve(paths_.size());
  for (std::size_t i = 0; i < paths_.size(); ++i) index_->leaves.emplace(to_absl(paths_[i]), i);
}

KeyTable::~KeyTable() = default;

std::optional<std::size_t> KeyTable::find(std::string_view path) const {
  const auto found = index_->leaves.find(to_absl(path));
  if (found == index_->leaves.end()) return std::nullopt;
  return found->second;
}

bool KeyTable::is_subtree(std::string_view path) const { return index_->subtrees.contains(to_absl(path)); }

std::size_t KeyTable::insert(std::string_view path) {
  check_path(path);
  TORCH_CHECK_VALUE(!find(path), "TensorDict: there is a leaf \"", path, "\" already");
  TORCH_CHECK_VALUE(!is_subtree(path), "TensorDict: \"", path, "\" is a subtree, it cannot be a leaf as well");
  for_each_parent(path, [&](std::string_view parent) {
    TORCH_CHECK_VALUE(!find(parent), "TensorDict: \"", path, "\" cannot be set, because \"", parent, "\" is a leaf");
  });
  const std::size_t position = paths_.size();
  paths_.emplace_back(path);
  index_->leaves.emplace(to_absl(paths_.back()), position);
  for_each_parent(path, [&](std::string_view parent) { ++index_->subtrees[std::string(parent)]; });
  return position;
}

bool same_paths(const KeyTable& left, const KeyTable& right) {
  if (&left == &right) return true;
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!right.find(left.path(i))) return false;
  }
  return true;
}

}  // namespace graft
