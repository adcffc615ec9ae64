// A few equal nets with parameters and buffers, and their trees.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <vector>

#include "functional/module_state.h"

namespace graft::testing {

inline std::vector<torch::nn::Sequential> make_nets(int count) {
  std::vector<torch::nn::Sequential> nets;
  for (int i = 0; i < count; ++i) {
    nets.emplace_back(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4), torch::nn::Linear(4, 2));
  }
  return nets;
}

template <typename Handle>
TensorDict state_of(const Handle& module) {
  return from_module(*module.ptr());
}

}  // namespace graft::testing
