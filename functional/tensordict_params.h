// TensorDictParams: a tree of tensors as a torch::nn::Module, for optimisers, files, casts and parent modules.
//
//   TensorDictParams params(from_module(net, State::kParameters), from_module(net, State::kBuffers));
//   torch::optim::Adam optimizer(params->parameters());
//   functional_call(net, params->tree(), x).sum().backward();
//   optimizer.step();
//   torch::save(params, "params.pt");
//
// LibTorch allows no dots in names, so each level of the tree is a sub-module of this class: the leaf "encoder.weight"
// is the parameter "weight" of the sub-module "encoder", and named_parameters() has the names of the tree.
//
// A level keeps its leaves in its registries and nowhere else. So whatever changes them shows in tree() and in
// parameters() at once: to_module, a guard on this or on a parent, to(dtype), torch::load. To replace leaves for good,
// call to_module with this as the module. It is not for changing which leaves there are: make another one.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "functional/module_state.h"
#include "tensordict/tensordict.h"

namespace graft {

/// The module behind the holder TensorDictParams. Python: tensordict.TensorDictParams.
class TensorDictParamsImpl : public torch::nn::Module {
 public:
  /// Registers the leaves of `params`: those of a floating point or complex type as parameters, the others as buffers.
  /// The tensors are shared, not copied, and each keeps its requires_grad: requires_grad_ of tensordict/autograd.h
  /// makes plain leaves trainable. The leaves keep their names, but those of a level come before the levels below it,
  /// parameters before buffers, as in from_module.
  /// \throws c10::ValueError listing every leaf that would be a parameter but is the result of a recorded operation,
  ///     which no optimiser can change.
  explicit TensorDictParamsImpl(const TensorDict& params);

  /// The same, and registers every leaf of `buffers` as a buffer, whatever its type.
  /// \throws c10::ValueError as above, if the batch sizes differ, and listing every name that both trees have.
  TensorDictParamsImpl(const TensorDict& params, const TensorDict& buffers);

  /// Returns the registered tensors, nothing is copied, with the batch size that the trees had.
  /// \throws c10::ValueError listing the leaves that do not start with the batch size, after others were installed
  ///     with `check_shapes = false`.
  TensorDict tree(State state = State::kAll) const;

  /// Returns tree(): so functional_call takes this module too.
  TensorDict forward() const { return tree(); }

  /// Returns every parameter once, whatever its number of names, so that an optimiser steps it once. (The function of
  /// the base class, which runs for a parent module, repeats a parameter that has two names.)
  std::vector<at::Tensor> parameters(bool recurse = true) const;

  /// Returns a TensorDictParams with copies of the tensors; names of one tensor are names of one copy.
  std::shared_ptr<torch::nn::Module> clone(const std::optional<at::Device>& device = std::nullopt) const override;

  /// Copies what torch::save wrote into the tensors, in place; each stays on its device.
  /// \throws c10::ValueError listing every leaf that is missing, unexpected, or of another shape or dtype. Nothing is
  ///     copied then.
  void load(torch::serialize::InputArchive& archive) override;

 private:
  void clone_(torch::nn::Module& other, const std::optional<at::Device>& device) override;
  void add(std::string_view path, const at::Tensor& leaf, bool is_buffer);
  TensorDictParamsImpl& level(const std::string& name);

  std::vector<int64_t> batch_size_;
};

/// Holds a TensorDictParamsImpl, as torch::nn::Linear holds a LinearImpl: copies share the module.
TORCH_MODULE(TensorDictParams);

}  // namespace graft
