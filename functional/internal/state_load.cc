#include "functional/internal/state_load.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <sstream>

#include "functional/internal/installation.h"
#include "functional/internal/saved_state.h"
#include "functional/load_hooks.h"
#include "functional/module_state.h"
#include "tensordict/leafwise.h"
#include "tensordict/transformed.h"

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

}  // namespace

TensorDict loaded_state(const TensorDict& tree, torch::nn::Module& module) {
  check_plain(tree);
  TensorDict state = tree;
  run_load_hooks(module, state);
  SavedState saved = saved_state(module);
  overlay(saved, state);

  const TensorDict held = from_module(module);
  const TensorDict values = clone(detach(held));
  const TensorDict scratch = clone(values);
  const TensorDict* const trees[] = {&scratch};
  const Installation installation(module, trees, {.call = "to_module", .alias = true});
  load(module, saved);
  TensorDict loaded;
  for (const auto& [path, value] : installation.current_values().leaves()) {
    if (tree.find(path) != nullptr || !are_equal(value, values.at(path))) loaded.set(path, value.detach());
  }
  return loaded;
}

}  // namespace graft::internal
