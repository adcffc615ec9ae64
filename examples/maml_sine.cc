// MAML on sine waves (Finn et al. 2017): learns initial parameters from which a few gradient steps fit a wave that was
// never seen, from ten points of it.
//
//   ./bazelw run //examples:maml_sine
//
// Twenty-five tasks adapt at once under vmap, and the outer gradient goes through their steps by ordinary autograd.
#include <torch/torch.h>

#include <iostream>
#include <numbers>
#include <optional>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/tree.h"
#include "tensordict/pointwise.h"
#include "vmap/vmap.h"

/// Points of a wave to learn from, and others to be judged by. With a leading dim: many tasks.
struct Task {
  torch::Tensor x, y, query_x, query_y;
};
GRAFT_TREE(Task, x, y, query_x, query_y)

namespace {

using graft::TensorDict;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::ReLU;

constexpr int64_t kTasks = 25, kPoints = 10;
constexpr int kInnerSteps = 3, kOuterSteps = 600;
constexpr double kInnerRate = 0.02, kOuterRate = 2e-3;

Task draw_tasks() {
  const Tensor amplitude = 0.1 + 4.9 * torch::rand({kTasks, 1, 1});
  const Tensor phase = std::numbers::pi * torch::rand({kTasks, 1, 1});
  const auto wave = [&](const Tensor& x) { return amplitude * (x + phase).sin(); };
  const Tensor x = 10 * torch::rand({kTasks, kPoints, 1}) - 5, query_x = 10 * torch::rand({kTasks, kPoints, 1}) - 5;
  return {x, wave(x), query_x, wave(query_x)};
}

}  // namespace

int main() {
  torch::manual_seed(0);
  torch::nn::Sequential net(Linear(1, 40), ReLU(), Linear(40, 40), ReLU(), Linear(40, 1));
  const TensorDict params = graft::from_module(net, graft::State::kParameters);

  const auto loss = [&](const TensorDict& p, const Tensor& x, const Tensor& y) {
    return torch::mse_loss(graft::functional_call(net, p, x), y);
  };
  const auto adapted_loss = [&](const TensorDict& p, const Task& task) {
    TensorDict adapted = p;
    for (int step = 0; step < kInnerSteps; ++step) {
      adapted = adapted - kInnerRate * graft::grad(loss)(adapted, task.x, task.y);
    }
    return loss(adapted, task.query_x, task.query_y);
  };
  const auto meta_loss = graft::vmap(adapted_loss, {.in_dims = {std::nullopt, 0}});

  torch::optim::Adam optimizer(net->parameters(), kOuterRate);
  double first = 0, smoothed = 0;
  for (int step = 0; step <= kOuterSteps; ++step) {
    optimizer.zero_grad();
    const Tensor mean = meta_loss(params, draw_tasks()).mean();
    mean.backward();
    optimizer.step();
    smoothed = step == 0 ? mean.item<double>() : 0.98 * smoothed + 0.02 * mean.item<double>();
    if (step == 0) first = smoothed;
    if (step % 100 == 0) std::cout << "step " << step << ": loss after adaptation " << smoothed << std::endl;
  }
  std::cout << "from " << first << " to " << smoothed << '\n';
  return smoothed < first / 2 ? 0 : 1;
}
