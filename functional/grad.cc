#include "functional/grad.h"

#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

namespace graft::internal {
namespace {

void check_loss(const Tensor& loss) {
  TORCH_CHECK_VALUE(loss.defined(),
                    "grad: the function returned an undefined tensor, expected "
                    "one of shape []");
  TORCH_CHECK_VALUE(loss.dim() == 0, "grad: the function returned a tensor of shape ", loss.sizes(),
                    ", expected shape []: only a function with one result has a gradient");
  TORCH_CHECK_TYPE(loss.is_floating_point(), "grad: the function returned a tensor of type ", loss.scalar_type(),
                   ", expected a floating type");
}

std::vector<Tensor> gradients_of(const Tensor& loss, const GradCall& call) {
  if (call.inputs().empty() || !call.level().requires_grad(loss)) return std::vector<Tensor>(call.inputs().size());
  // A graph of the gradients costs time and memory: only for whoever differentiates them.
  return torch::autograd::grad({loss}, call.inputs(), /*grad_outputs=*/{}, /*retain_graph=*/std::nullopt,
                               /*create_graph=*/call.level().is_differentiated_outside(loss),
                               /*allow_unused=*/true);
}

}  // namespace

void differentiate(const GradCall& call, const Tensor& loss, const ArgumentParts& gradients) {
  check_loss(loss);
  const std::vector<Tensor> found = gradients_of(loss, call);
  auto next = found.begin();
  for (const auto& parts : gradients) {
    for (const TreePart& part : parts) {
      replace_tensors(part, [&](const Tensor& original) {
        const Tensor& gradient = *next++;
        return call.level().unwrap(gradient.defined() ? gradient : at::zeros_like(original));
      });
    }
  }
}

}  // namespace graft::internal
