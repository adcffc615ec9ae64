// Layers that can keep a running mean and variance of what they normalize.
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/instancenorm.h>

namespace graft::internal {

/// Calls `visitor` with the layer by its own type if `module` is a BatchNorm or an InstanceNorm, or derived from one.
template <typename Visitor>
void visit_if_norm_layer(torch::nn::Module& module, const Visitor& visitor) {
  const auto visit_as = [&]<typename Layer>(Layer* layer) {
    if (layer != nullptr) visitor(*layer);
  };
  visit_as(dynamic_cast<torch::nn::BatchNorm1dImpl*>(&module));
  visit_as(dynamic_cast<torch::nn::BatchNorm2dImpl*>(&module));
  visit_as(dynamic_cast<torch::nn::BatchNorm3dImpl*>(&module));
  visit_as(dynamic_cast<torch::nn::InstanceNorm1dImpl*>(&module));
  visit_as(dynamic_cast<torch::nn::InstanceNorm2dImpl*>(&module));
  visit_as(dynamic_cast<torch::nn::InstanceNorm3dImpl*>(&module));
}

/// Does forward of this module, its children aside, write running statistics?
inline bool writes_running_statistics(torch::nn::Module& module) {
  bool writes = false;
  visit_if_norm_layer(module,
                      [&](auto& layer) { writes = layer.is_training() && layer.options.track_running_stats(); });
  return writes;
}

}  // namespace graft::internal
