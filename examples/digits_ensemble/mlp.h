// Mlp: one member of the ensemble, a plain LibTorch module that knows nothing of Graft.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace digits_ensemble {

/// Pixels -> two hidden layers with ReLU -> class scores: [..., 64] -> [..., 10].
class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(int64_t hidden1, int64_t hidden2);
  at::Tensor forward(const at::Tensor& pixels);

 private:
  torch::nn::Linear hidden1_;
  torch::nn::Linear hidden2_;
  torch::nn::Linear output_;
};
TORCH_MODULE(Mlp);

/// Makes `count` members, each with its own initial values, all following from `seed`. They have two hidden layers of
/// `width`, or of 128 and 64 if that is 0.
std::vector<Mlp> make_members(int64_t count, int64_t width, uint64_t seed);

}  // namespace digits_ensemble
