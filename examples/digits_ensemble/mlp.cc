#include "examples/digits_ensemble/mlp.h"

#include <torch/utils.h>

#include "examples/digits_ensemble/digits.h"

namespace digits_ensemble {

MlpImpl::MlpImpl(int64_t hidden1, int64_t hidden2)
    : hidden1_(register_module("hidden1", torch::nn::Linear(kPixels, hidden1))),
      hidden2_(register_module("hidden2", torch::nn::Linear(hidden1, hidden2))),
      output_(register_module("output", torch::nn::Linear(hidden2, kClasses))) {}

at::Tensor MlpImpl::forward(const at::Tensor& pixels) { return output_(hidden2_(hidden1_(pixels).relu()).relu()); }

std::vector<Mlp> make_members(int64_t count, int64_t width, uint64_t seed) {
  torch::manual_seed(seed);
  std::vector<Mlp> members;
  for (int64_t i = 0; i < count; ++i) {
    members.push_back(width == 0 ? Mlp(128, 64) : Mlp(width, width));
  }
  return members;
}

}  // namespace digits_ensemble
