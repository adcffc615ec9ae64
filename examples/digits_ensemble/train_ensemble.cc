#include "examples/digits_ensemble/train_ensemble.h"

#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>

#include <limits>
#include <utility>
#include <vector>

#include "examples/digits_ensemble/bootstrap.h"
#include "examples/digits_ensemble/metrics.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "tensordict/tensordict.h"
#include "vmap/vmap.h"

namespace digits_ensemble {
namespace {

using at::Tensor;
using graft::TensorDict;

/// Remembers the best parameters, and says when to give up.
class EarlyStop {
 public:
  explicit EarlyStop(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {}

  void observe(double validation_loss) {
    ++epochs_without_progress_;
    if (validation_loss >= least_) return;
    least_ = validation_loss;
    epochs_without_progress_ = 0;
    best_.clear();
    for (const Tensor& parameter : parameters_) best_.push_back(parameter.detach().clone());
  }

  bool should_stop() const { return epochs_without_progress_ == kPatience; }

  void restore_best() {
    for (std::size_t i = 0; i < best_.size(); ++i) parameters_[i].copy_(best_[i]);
  }

 private:
  static constexpr int kPatience = 5;

  std::vector<Tensor> parameters_;
  std::vector<Tensor> best_;
  double least_ = std::numeric_limits<double>::infinity();
  int epochs_without_progress_ = 0;
};

std::vector<Bootstrap> make_bootstraps(int64_t members, int64_t digits, const TrainingOptions& options) {
  std::vector<Bootstrap> bootstraps;
  for (int64_t i = 0; i < members; ++i) bootstraps.emplace_back(digits, options.batch, options.seed, i);
  return bootstraps;
}

/// All members' batches of the next epoch: a [m, b] for each step.
std::vector<Tensor> next_epoch(std::vector<Bootstrap>& bootstraps) {
  std::vector<Tensor> batches;
  for (Bootstrap& bootstrap : bootstraps) batches.push_back(bootstrap.next_epoch());
  return at::stack(batches, /*dim=*/1).unbind();
}

/// Returns a function that trains all members on a batch each and returns their losses: ([m, b, 64], [m, b]) -> [m].
auto make_train_step(MlpEnsemble& ensemble, torch::optim::Adam& optimizer) {
  const auto loss = [&](const TensorDict& parameters, const Tensor& pixels, const Tensor& labels) {
    return torch::nn::functional::cross_entropy(graft::functional_call(ensemble.structure(), parameters, pixels),
                                                labels);
  };
  const auto losses_and_gradients = graft::vmap(graft::value_and_grad(loss), {.in_dims = {0, 0, 0}});

  return [&ensemble, &optimizer, losses_and_gradients](const Digits& batch) {
    const TensorDict& parameters = ensemble.state().params;
    const auto [losses, gradients] = losses_and_gradients(parameters, batch.pixels, batch.labels);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      parameters.values()[i].mutable_grad() = gradients.values()[i];
    }
    optimizer.step();
    return losses;
  };
}

}  // namespace

TrainingLog train_ensemble(MlpEnsemble& ensemble, const Split& split, const TrainingOptions& options,
                           Progress& progress) {
  const at::NoGradGuard no_grad;  // value_and_grad records what it needs
  torch::optim::Adam optimizer(ensemble.parameters(), torch::optim::AdamOptions(kLearningRate));
  const auto train_step = make_train_step(ensemble, optimizer);
  std::vector<Bootstrap> bootstraps = make_bootstraps(ensemble.size(), split.train.labels.size(0), options);

  EarlyStop early_stop(ensemble.parameters());
  TrainingLog log;
  std::vector<Tensor> losses;  // [steps, m] of each epoch
  for (int64_t epoch = 0; epoch < options.epochs && !early_stop.should_stop(); ++epoch) {
    {
      const ScopedTimer timer(&log.step_seconds);
      std::vector<Tensor> of_steps;
      for (const Tensor& batch : next_epoch(bootstraps)) of_steps.push_back(train_step(gather(split.train, batch)));
      losses.push_back(at::stack(of_steps));
    }
    const Tensor probabilities = predict(ensemble, split.validation.pixels).mean(0);
    const double validation_loss = negative_log_likelihood(probabilities, split.validation.labels);
    early_stop.observe(validation_loss);
    progress.epoch_done(losses.back().mean().item<double>(), validation_loss);
  }
  progress.finish();
  early_stop.restore_best();
  log.losses = at::stack(losses);
  return log;
}

Tensor predict(const MlpEnsemble& ensemble, const Tensor& pixels) {
  const at::NoGradGuard no_grad;
  return ensemble.forward(pixels).softmax(-1);
}

}  // namespace digits_ensemble
