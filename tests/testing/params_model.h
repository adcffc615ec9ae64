// Trees to make a TensorDictParams of, and a module that holds one.
#pragma once

#include <torch/torch.h>

#include <utility>

#include "functional/tensordict_params.h"
#include "tensordict/tensordict.h"

namespace graft::testing {

/// Returns copies of the leaves that are leaves themselves, with the same flags.
inline TensorDict copy_of(const TensorDict& tree) {
  return tree.map(
      [](const torch::Tensor& leaf) { return leaf.detach().clone().set_requires_grad(leaf.requires_grad()); });
}

/// Parameters on three levels and an integer buffer.
inline TensorDict make_tree() {
  return TensorDict({{"layer.weight", torch::randn({3, 2}).set_requires_grad(true)},
                     {"layer.deep.scale", torch::randn({2}).set_requires_grad(true)},
                     {"bias", torch::randn({2}).set_requires_grad(true)},
                     {"layer.steps", torch::tensor(5)}});
}

/// One parameter under two names.
inline TensorDict make_tied_tree() {
  const torch::Tensor weight = torch::ones({2}).set_requires_grad(true);
  return TensorDict({{"encoder.weight", weight}, {"decoder.weight", weight}});
}

/// A module that computes with the leaves of a TensorDictParams.
struct ModelImpl : torch::nn::Cloneable<ModelImpl> {
  explicit ModelImpl(TensorDict initial_leaves) : initial(std::move(initial_leaves)) { ModelImpl::reset(); }
  void reset() override { params = register_module("params", TensorDictParams(copy_of(initial))); }
  torch::Tensor forward(const torch::Tensor& x) {
    const TensorDict tree = params->tree();
    return x.matmul(tree["layer.weight"]) * tree["layer.deep.scale"] + tree["bias"];
  }
  TensorDict initial;
  TensorDictParams params = nullptr;
};
TORCH_MODULE(Model);

}  // namespace graft::testing
