// Modules and trees that the rows share.
#pragma once

#include <torch/torch.h>

#include <string>

#include "functional/module_state.h"
#include "functional/slots.h"
#include "functional/to_module.h"
#include "tensordict/map.h"

namespace graft::testing {

/// Two layers with a name of their own below the root, and buffers.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    fc2 = register_module("fc2", torch::nn::Linear(torch::nn::LinearOptions(4, 2).bias(false)));
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(norm(torch::relu(fc1(x)))); }
  torch::nn::Linear fc1 = nullptr, fc2 = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Net);

/// Says nothing of where it keeps its parameter.
struct RawImpl : torch::nn::Module {
  RawImpl() { w = register_parameter("w", torch::ones({2})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * w; }
  torch::Tensor w;
};
TORCH_MODULE(Raw);

/// One parameter under two names.
struct TwiceImpl : torch::nn::Module {
  TwiceImpl() {
    v = register_parameter("v", torch::ones({2}));
    w = register_parameter("w", v);
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * v + w; }
  torch::Tensor v, w;
};
TORCH_MODULE(Twice);

/// Assigns to its buffer.
struct CounterImpl : torch::nn::Module {
  CounterImpl() { count = register_buffer("count", torch::zeros({})); }
  torch::Tensor forward() { return count = count + 1; }
  torch::Tensor count;
};
TORCH_MODULE(Counter);

/// One module under two names.
struct SharedImpl : torch::nn::Module {
  SharedImpl() {
    first = register_module("first", torch::nn::Linear(2, 2));
    second = register_module("second", first);
  }
  torch::Tensor forward(const torch::Tensor& x) { return second(first(x)); }
  torch::nn::Linear first = nullptr, second = nullptr;
};
TORCH_MODULE(Shared);

/// Plain leaves of the module's shapes: 0.5, 1.5, 2.5, ... (integer buffers 0, 1, 2, ...)
inline TensorDict numbered_leaves(torch::nn::Module& module) {
  double value = 0.5;
  return map(from_module(module), [&](const torch::Tensor& held) { return torch::full_like(held, value++); });
}

/// The same, each floating leaf requiring grad.
inline TensorDict numbered_leaves_with_grad(torch::nn::Module& module) {
  return map(numbered_leaves(module), [](const torch::Tensor& leaf) {
    return leaf.is_floating_point() ? leaf.detach().requires_grad_() : leaf;
  });
}

inline bool is_alias(const torch::Tensor& left, const torch::Tensor& right) {
  return left.data_ptr() == right.data_ptr() && left.sizes() == right.sizes() && left.strides() == right.strides();
}

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::TwiceImpl, v, w)
GRAFT_SLOTS(graft::testing::CounterImpl, count)
