// The three registries of a torch::nn::Module, which LibTorch does not let others edit.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace graft::internal {

using TensorRegistry = torch::OrderedDict<std::string, at::Tensor>;
using ChildRegistry = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

TensorRegistry& parameter_registry(torch::nn::Module& module);
TensorRegistry& buffer_registry(torch::nn::Module& module);
ChildRegistry& child_registry(torch::nn::Module& module);

}  // namespace graft::internal
