#include "examples/digits_ensemble/train_loop.h"

#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include "examples/digits_ensemble/bootstrap.h"

namespace digits_ensemble {
namespace {

/// Trains one member; returns its losses, [epochs, steps].
at::Tensor train_member(Mlp member, Bootstrap bootstrap, const Digits& train, int64_t epochs) {
  torch::optim::Adam optimizer(member->parameters(), torch::optim::AdamOptions(kLearningRate));
  std::vector<at::Tensor> losses;
  int64_t steps = 0;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const at::Tensor batches = bootstrap.next_epoch();
    steps = batches.size(0);
    for (int64_t step = 0; step < steps; ++step) {
      const Digits batch = gather(train, batches.select(0, step));
      optimizer.zero_grad();
      const at::Tensor loss = torch::nn::functional::cross_entropy(member->forward(batch.pixels), batch.labels);
      loss.backward();
      optimizer.step();
      losses.push_back(loss.detach());
    }
  }
  return at::stack(losses).view({epochs, steps});
}

}  // namespace

TrainingLog train_loop(const std::vector<Mlp>& members, const Digits& train, const TrainingOptions& options) {
  TrainingLog log;
  ScopedTimer timer(&log.step_seconds);
  std::vector<at::Tensor> losses;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Bootstrap bootstrap(train.labels.size(0), options.batch, options.seed, static_cast<int64_t>(i));
    losses.push_back(train_member(members[i], bootstrap, train, options.epochs));
  }
  log.losses = at::stack(losses, -1);
  return log;
}

}  // namespace digits_ensemble
