// A gradient for each sample, in one batched run.
#include <torch/torch.h>

#include <iostream>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "vmap/vmap.h"

namespace F = torch::nn::functional;
using graft::TensorDict;
using torch::Tensor;

int main() {
  torch::nn::Sequential net(torch::nn::Linear(4, 8), torch::nn::Tanh(), torch::nn::Linear(8, 3));
  const Tensor inputs = torch::randn({5, 4}), labels = torch::randint(3, {5}, torch::kLong);
  const auto loss = [&](const TensorDict& params, const Tensor& x, const Tensor& label) {
    return F::cross_entropy(graft::functional_call(net, params, x), label);
  };

  const TensorDict params = graft::from_module(net);  // the module's own tensors, by name
  const auto per_sample_grad = graft::vmap(graft::grad(loss), {.in_dims = {std::nullopt, 0, 0}});
  const TensorDict gradients = per_sample_grad(params, inputs, labels);

  bool equal = true;  // to what LibTorch alone computes, one sample at a time
  for (int64_t i = 0; i < inputs.size(0); ++i) {
    net->zero_grad();
    F::cross_entropy(net->forward(inputs[i]), labels[i]).backward();
    for (const auto& [path, leaf] : params.leaves()) {
      equal &= gradients[path][i].allclose(leaf.grad(), 1e-5, 1e-6);
    }
  }
  for (const auto& [path, leaf] : gradients.leaves()) std::cout << path << " " << leaf.sizes() << "\n";
  std::cout << "equal to backward(), sample by sample: " << std::boolalpha << equal << "\n";
}
