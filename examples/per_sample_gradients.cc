// Per-sample gradients of a convolutional net on handwritten digits: their norms, and their sum with each clipped, as
// differentially private training takes it.
//
//   ./bazelw run //examples:per_sample_gradients -- examples/data/digits.csv
//
// One call gives all of them; the program checks some against a backward for each sample.
#include <torch/torch.h>

#include <iomanip>
#include <iostream>
#include <optional>

#include "examples/digits_ensemble/digits.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "tensordict/clip.h"
#include "tensordict/global_reduce.h"
#include "tensordict/tensordict.h"
#include "vmap/vmap.h"

namespace {

using graft::TensorDict;
using torch::Tensor;
using namespace torch::nn;  // NOLINT: a list of layers

constexpr int64_t kSamples = 256, kChecked = 8;
constexpr double kClip = 1.0;

Sequential make_net() {
  return Sequential(Unflatten(UnflattenOptions(1, {1, 8, 8})), Conv2d(Conv2dOptions(1, 8, 3).padding(1)), ReLU(),
                    MaxPool2d(2), Conv2d(Conv2dOptions(8, 16, 3).padding(1)), ReLU(), Flatten(), Linear(16 * 16, 10));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: per_sample_gradients digits.csv\n";
    return 2;
  }
  torch::manual_seed(0);
  const digits_ensemble::Digits digits = digits_ensemble::read_digits(argv[1]);
  const Tensor x = digits.pixels.narrow(0, 0, kSamples), y = digits.labels.narrow(0, 0, kSamples);
  Sequential net = make_net();
  const TensorDict params = graft::from_module(net);

  const auto loss = [&](const TensorDict& p, const Tensor& image, const Tensor& label) {
    return torch::cross_entropy_loss(graft::functional_call(net, p, image.unsqueeze(0)), label.unsqueeze(0));
  };
  const TensorDict gradients = graft::vmap(graft::grad(loss), {.in_dims = {std::nullopt, 0, 0}})(params, x, y);
  const Tensor norms = graft::global_norm(gradients, /*batch_dims=*/1);
  std::cout << "norms from " << norms.min().item<float>() << " to " << norms.max().item<float>() << ", "
            << (norms > kClip).sum().item<int64_t>() << " of " << kSamples << " clipped to " << kClip << '\n';
  const TensorDict clipped = graft::clip_by_global_norm(gradients, kClip, {.batch_dims = 1});
  for (const auto& [path, leaf] : clipped.leaves()) {
    std::cout << std::left << std::setw(10) << path << " norm of the clipped sum " << leaf.sum(0).norm().item<float>()
              << '\n';
  }

  double difference = 0;
  for (int64_t i = 0; i < kChecked; ++i) {
    net->zero_grad();
    loss(params, x[i], y[i]).backward();
    for (const auto& [path, leaf] : gradients.leaves()) {
      difference = std::max(difference, (leaf[i] - params[path].grad()).abs().max().item<double>());
    }
  }
  std::cout << "largest difference from backward for each of " << kChecked << ": " << difference << '\n';
  return difference < 1e-5 ? 0 : 1;
}
