#include "functional/vjp.h"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>

#include "functional/rules/wrapped_value.h"

namespace graft::internal {

Recording::Recording(const GradCall& call, const std::vector<TreePart>& results)
    : inputs_(call.inputs()), results_(tensors_of(results)) {
  call.leave(results);
}

std::vector<Tensor> Recording::pull_back(const std::vector<Tensor>& cotangents) const {
  std::vector<Tensor> results, weights;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (!results_[i].defined() || !results_[i].requires_grad()) continue;
    results.push_back(results_[i]);
    weights.push_back(cotangents[i]);
  }
  std::vector<Tensor> gradients(inputs_.size());
  if (!results.empty()) {
    gradients = torch::autograd::grad(results, inputs_, weights, /*retain_graph=*/true,
                                      /*create_graph=*/is_differentiated(cotangents), /*allow_unused=*/true);
  }
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Tensor gradient = gradients[i].defined() ? with_memory(gradients[i]) : at::zeros_like(inputs_[i]);
    gradients[i] = without_ended_level(gradient);
  }
  return gradients;
}

/// Will a level further out, or ordinary autograd, differentiate what is pulled back?
bool Recording::is_differentiated(const std::vector<Tensor>& cotangents) const {
  if (is_differentiated_forward()) return true;
  if (!c10::GradMode::is_enabled()) return false;
  const auto requires_grad = [](const Tensor& tensor) {
    return tensor.defined() && requires_grad_on_any_level(without_ended_level(tensor));
  };
  return std::any_of(cotangents.begin(), cotangents.end(), requires_grad) ||
         std::any_of(inputs_.begin(), inputs_.end(), requires_grad) ||
         std::any_of(results_.begin(), results_.end(), requires_grad);
}

}  // namespace graft::internal
