#include "functional/batch_norm.h"

#include <torch/nn/module.h>

#include <utility>

#include "functional/internal/norm_layers.h"

namespace graft {
namespace {

/// Returns what undoes the change; nothing if the layer follows the policy already, as a layer does that has two
/// parents and was met before.
std::function<void()> use_batch_statistics(torch::nn::Module& module) {
  std::function<void()> undo;
  internal::visit_if_norm_layer(module, [&](auto& layer) {
    if (!layer.options.track_running_stats()) return;
    undo = [&layer, mean = layer.running_mean, variance = layer.running_var] {
      layer.running_mean = mean;
      layer.running_var = variance;
      layer.options.track_running_stats(true);
    };
    layer.running_mean.reset();
    layer.running_var.reset();
    layer.options.track_running_stats(false);
  });
  return undo;
}

std::function<void()> freeze(torch::nn::Module& module) {
  if (!internal::writes_running_statistics(module)) return {};
  module.eval();
  return [&module] { module.train(); };
}

}  // namespace

BatchNormGuard::BatchNormGuard(const ModuleRef& module, BatchNormPolicy policy)
    : claim_(module.get(), internal::ClaimKind::kExclusive, "BatchNormGuard") {
  module.get().apply([&](torch::nn::Module& part) {
    auto undo = policy == BatchNormPolicy::kFrozen ? freeze(part) : use_batch_statistics(part);
    if (undo) undo_.push_back(std::move(undo));
  });
}

BatchNormGuard::~BatchNormGuard() {
  for (auto undo = undo_.rbegin(); undo != undo_.rend(); ++undo) (*undo)();
}

}  // namespace graft
