#include "tensordict/update.h"

#include <c10/util/Exception.h>

#include <ostream>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "tensordict/copy.h"
#include "tensordict/internal/part_sizes.h"
#include "tensordict/internal/write_check.h"
#include "tensordict/partition.h"

namespace graft {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Returns the leaves of `tree` that have the paths of `other`, in its order.
/// \throws c10::IndexError listing every path that is absent.
Tensors targets_in(const char* call, const TensorDict& tree, const TensorDict& other) {
  if (tree.keys() == other.keys()) return tree.values();
  Tensors targets;
  std::ostringstream problems;
  for (const auto& [path, value] : other.leaves()) {
    if (const at::Tensor* target = tree.find(path)) {
      targets.push_back(*target);
    } else {
      problems << "\n  \"" << path << "\": missing";
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_INDEX(text.empty(), call, ": the tree does not have these leaves:", text, "\nNothing is changed.");
  return targets;
}

/// Puts the leaves of `other` into `tree`, and makes its parts, if they are new, what they are in `other`.
void set_all(TensorDict& tree, const TensorDict& other) {
  absl::flat_hash_set<std::string> new_parts;
  for (const auto& [part, beyond] : other.nested_sizes().parts()) {
    if (!tree.contains(part)) new_parts.insert(part);
  }
  std::ostringstream problems;
  for (const auto& [path, value] : other.leaves()) {
    try {
      tree.set(path, value);
    } catch (const c10::ValueError& error) {
      problems << "\n  \"" << path << "\": " << error.what_without_backtrace();
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "update: these leaves do not fit:", text, "\nNothing is changed.");
  internal::take_part_sizes(tree, other, [&](const std::string& part) { return new_parts.contains(part); });
}

void check_batch_size(const char* call, const TensorDict& tree, const TensorDict& other) {
  TORCH_CHECK_VALUE(tree.batch_size() == other.batch_size(), call, ": batch size ", at::IntArrayRef(other.batch_size()),
                    ", expected ", at::IntArrayRef(tree.batch_size()), "\nNothing is changed.");
}

}  // namespace

void update(TensorDict& tree, const TensorDict& other, const UpdateOptions& options) {
  check_batch_size("update", tree, other);
  const TensorDict given = options.keys ? select(other, *options.keys) : other;
  const auto stays = [&](const std::string& path, const at::Tensor&) { return options.inplace && tree.find(path); };
  const auto [written, replaced] = partition(given, stays);
  const Tensors targets = targets_in("update", tree, written);
  internal::check_writable("update", *written.keys(), targets, written.values());
  if (!replaced.empty()) {
    TensorDict changed = tree;
    set_all(changed, options.clone ? clone(replaced) : replaced);
    tree = std::move(changed);
  }
  internal::copy_values(targets, written.values());
}

void update_(const TensorDict& tree, const TensorDict& other) {
  const Tensors targets = targets_in("update_", tree, other);
  internal::write_values("update_", *other.keys(), targets, other.values());
}

void set_(const TensorDict& tree, std::string_view path, const at::Tensor& value) {
  TORCH_CHECK_VALUE(value.defined(), "set_: an undefined tensor for \"", path, '"');
  const Tensors targets = {tree.at(path)}, values = {value};
  KeyTable keys;
  keys.insert(path);
  internal::write_values("set_", keys, targets, values);
}

TensorDict replace(const TensorDict& tree, const TensorDict& other) {
  targets_in("replace", tree, other);  // throws if there is a path that the tree does not have
  TensorDict result = tree.unlocked();
  update(result, other);
  return result;
}

at::Tensor pop(TensorDict& tree, std::string_view path) {
  at::Tensor leaf = tree.at(path);
  tree.erase(path);
  return leaf;
}

at::Tensor pop(TensorDict& tree, std::string_view path, at::Tensor otherwise) {
  return tree.find(path) ? pop(tree, path) : otherwise;
}

at::Tensor setdefault(TensorDict& tree, std::string_view path, at::Tensor otherwise) {
  if (!tree.find(path)) tree.set(path, std::move(otherwise));
  return tree.at(path);
}

void rename_key(TensorDict& tree, std::string_view from, std::string_view to) {
  TORCH_CHECK_VALUE(from == to || !tree.contains(to), "rename_key: there is something at \"", to, "\" already");
  TensorDict changed = tree;
  if (const at::Tensor* leaf = tree.find(from)) {
    changed.erase(from);
    changed.set(to, *leaf);
  } else {
    changed.erase(from);
    changed.set(to, tree.subtree(from));
  }
  internal::take_part_sizes(changed, tree);  // of parts that had no leaf for the moment
  tree = std::move(changed);
}

void clear(TensorDict& tree) {
  TORCH_CHECK(!tree.is_locked(), "clear: the tree is locked");
  tree = TensorDict(tree.batch_size());
}

}  // namespace graft
