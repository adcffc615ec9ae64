// What examples that are worked out by hand share: small modules with small numbers.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensordict/autograd.h"
#include "tensordict/pointwise.h"
#include "tensordict/tensordict.h"
#include "tensordict/ties.h"

namespace graft::testing {

inline constexpr double kEps = 1e-5;  ///< of BatchNorm

/// Returns a leaf of autograd.
inline torch::Tensor trained(const torch::Tensor& values) { return values.clone().requires_grad_(); }

/// Makes the module double, and sets each parameter to one value throughout; tied ones have one.
inline void fill(torch::nn::Module& module, const std::vector<double>& values) {
  const torch::NoGradGuard no_grad;
  module.to(torch::kDouble);
  const auto parameters = distinct(module.parameters());
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i].fill_(values[i]);
}

inline torch::nn::Linear linear(int64_t in, int64_t out, bool bias) {
  torch::nn::Linear module(torch::nn::LinearOptions(in, out).bias(bias));
  module->to(torch::kDouble);
  return module;
}

/// Returns p - rate * gradient for each leaf.
inline TensorDict stepped(const TensorDict& params, const torch::Tensor& loss, double rate, bool second_order = true) {
  return params - rate * gradients(loss, params, {.retain_graph = true, .create_graph = second_order});
}

}  // namespace graft::testing
