#include "functional/internal/state_load.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "functional/internal/installation.h"
#include "functional/internal/leaf_requests.h"
#include "functional/internal/saved_state.h"
#include "functional/load_hooks.h"
#include "functional/module_state.h"
#include "tensordict/internal/transformed.h"
#include "tensordict/nested_key.h"
#include "tensordict/ties.h"

namespace graft::internal {
namespace {

void check_plain(const TensorDict& tree) {
  std::ostringstream problems;
  for (const auto& [path, leaf] : tree.leaves()) {
    if (is_transformed(leaf) || leaf._fw_grad(/*level=*/0).defined()) problems << "\n  \"" << path << "\"";
  }
  TORCH_CHECK_VALUE(problems.str().empty(),
                    "to_module: with use_state_dict leaves pass through an archive, which cannot hold what vmap, grad, "
                    "another transform or a forward-mode tangent made of these:",
                    problems.str(), "\nThe module is unchanged.");
}

bool are_equal(const at::Tensor& left, const at::Tensor& right) {
  return left.sizes() == right.sizes() && left.scalar_type() == right.scalar_type() &&
         left.device() == right.device() && at::equal(left, right);
}

/// The names of a module's state. What lies in a shared module has several, and is saved and loaded once for each.
class SharedNames {
 public:
  explicit SharedNames(torch::nn::Module& root) {
    add("", root);
    for (const auto& item : root.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
      add(item.key(), *item.value());
    }
  }

  /// Gives the other names of what has a leaf the same leaf.
  /// \throws c10::ValueError listing names of one thing that have different leaves.
  void complete(TensorDict& state) const {
    std::string conflicts;
    const TensorDict given = state;
    for (const auto& [path, leaf] : given.leaves()) {
      for (const std::string& name : names_of(path)) {
        const at::Tensor* const known = given.find(name);
        if (known == nullptr) {
          state.set(name, leaf);
        } else if (!known->is_same(leaf) && path < name) {
          conflicts += conflict_line(path, name);
        }
      }
    }
    TORCH_CHECK_VALUE(conflicts.empty(), "to_module: conflicting leaves:", conflicts, "\nThe module is unchanged.");
  }

  /// Returns a copy of each thing, under all its names.
  TensorDict copies_of(const TensorDict& held) const {
    TensorDict copies;
    for (const auto& [path, tensor] : held.leaves()) {
      const at::Tensor* const known = copies.find(names_of(path).front());
      copies.set(path, known != nullptr ? at::Tensor(*known) : tensor.detach().clone());
    }
    return copies;
  }

 private:
  void add(const std::string& path, const torch::nn::Module& module) {
    module_of_.emplace(path, &module);
    paths_[&module].push_back(path);
  }

  /// Returns all names of what `path` names, itself among them, always in the same order.
  std::vector<std::string> names_of(const std::string& path) const {
    std::string_view owner = parent_path(path);
    while (!module_of_.contains(owner)) owner = parent_path(owner);
    const std::string_view rest = std::string_view(path).substr(owner.empty() ? 0 : owner.size() + 1);
    std::vector<std::string> names;
    for (const std::string& other : paths_.at(module_of_.find(owner)->second)) names.push_back(join_path(other, rest));
    return names;
  }

  std::map<std::string, const torch::nn::Module*, std::less<>> module_of_;
  absl::flat_hash_map<const torch::nn::Module*, std::vector<std::string>> paths_;
};

/// Leaves that were one tensor and were loaded to equal values are one again.
void tie_again(const TensorDict& tree, TensorDict& loaded) {
  const std::vector<std::size_t> ties = tie_positions(tree.values());
  for (std::size_t i = 0; i < ties.size(); ++i) {
    const at::Tensor* const first = loaded.find(tree.keys()->path(ties[i]));
    const at::Tensor* const other = loaded.find(tree.keys()->path(i));
    if (first == nullptr || other == nullptr || first == other || !are_equal(*first, *other)) continue;
    loaded.set(tree.keys()->path(i), at::Tensor(*first));
  }
}

/// Returns the values without their derivatives, ties kept.
TensorDict detached(const TensorDict& values) {
  absl::flat_hash_map<const at::TensorImpl*, at::Tensor> known;
  return values.map([&](const at::Tensor& value) {
    at::Tensor& result = known[value.unsafeGetTensorImpl()];
    if (!result.defined()) result = value.detach();
    return result;
  });
}

}  // namespace

TensorDict loaded_state(const TensorDict& tree, torch::nn::Module& module) {
  check_plain(tree);
  TensorDict state = tree;
  run_load_hooks(module, state);
  const SharedNames names(module);
  names.complete(state);
  SavedState saved = saved_state(module);
  overlay(saved, state);

  const TensorDict held = from_module(module);
  const TensorDict values = names.copies_of(held);
  const TensorDict scratch = names.copies_of(held);
  const TensorDict* const trees[] = {&scratch};
  const Installation installation(module, trees, {.call = "to_module", .alias = true});
  load(module, saved);
  TensorDict loaded;
  for (const auto& [path, value] : installation.current_values().leaves()) {
    const bool is_named = tree.find(path) != nullptr || state.find(path) != nullptr;
    if (is_named || !are_equal(value, values.at(path))) loaded.set(path, value);
  }
  loaded = detached(loaded);
  tie_again(tree, loaded);
  return loaded;
}

}  // namespace graft::internal
