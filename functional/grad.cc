#include "functional/grad.h"

#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <sstream>

namespace graft::internal {
namespace {

bool has_derivative(const Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

void check_loss(const Tensor& loss) {
  TORCH_CHECK_VALUE(loss.defined(),
                    "grad: the function returned an undefined tensor, expected "
                    "one of shape []");
  TORCH_CHECK_VALUE(loss.dim() == 0, "grad: the function returned a tensor of shape ", loss.sizes(),
                    ", expected shape []: only a function with one result has a gradient");
  TORCH_CHECK_TYPE(loss.is_floating_point(), "grad: the function returned a tensor of type ", loss.scalar_type(),
                   ", expected a floating type");
}

}  // namespace

void check_differentiable(const ArgumentParts& arguments, const std::vector<std::size_t>& differentiated) {
  std::ostringstream problems;
  for (const std::size_t position : differentiated) {
    for (const TreePart& part : arguments[position]) {
      visit_tensors(part, [&](const Tensor& tensor, const TensorPlace& place) {
        if (has_derivative(tensor)) return;
        problems << "\n  " << place.describe("argument " + std::to_string(position)) << ": "
                 << (tensor.defined() ? c10::toString(tensor.scalar_type()) : "undefined");
      });
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_TYPE(text.empty(), "grad: these tensors have no derivative:", text,
                   "\nSplit them off and pass them as an argument that is not "
                   "differentiated.");
}

GradCall::GradCall(const ArgumentParts& arguments, const std::vector<std::size_t>& differentiated) {
  for (const auto& parts : arguments) {
    for (const TreePart& part : parts) {
      replace_tensors(part, [&](const Tensor& tensor) { return tensor.defined() ? level_.wrap(tensor) : tensor; });
    }
  }
  for (const std::size_t position : differentiated) {
    for (const TreePart& part : arguments[position]) {
      visit_tensors(part, [&](const Tensor& tensor, const TensorPlace&) {
        inputs_.push_back(tensor);
        inputs_.back().set_requires_grad(true);
      });
    }
  }
}

void GradCall::differentiate(const Tensor& loss, const ArgumentParts& gradients) const {
  check_loss(loss);
  const std::vector<Tensor> found = gradients_of(loss);
  auto next = found.begin();
  for (const auto& parts : gradients) {
    for (const TreePart& part : parts) {
      replace_tensors(part, [&](const Tensor& original) {
        const Tensor& gradient = *next++;
        return level_.unwrap(gradient.defined() ? gradient : at::zeros_like(original));
      });
    }
  }
}

std::vector<Tensor> GradCall::gradients_of(const Tensor& loss) const {
  if (inputs_.empty() || !level_.requires_grad(loss)) return std::vector<Tensor>(inputs_.size());
  // A graph of the gradients costs time and memory: only for whoever differentiates them.
  return torch::autograd::grad({loss}, inputs_, /*grad_outputs=*/{}, /*retain_graph=*/std::nullopt,
                               /*create_graph=*/level_.is_differentiated_outside(loss),
                               /*allow_unused=*/true);
}

void GradCall::leave(const std::vector<TreePart>& parts) const {
  for (const TreePart& part : parts) {
    replace_tensors(part, [&](const Tensor& tensor) { return tensor.defined() ? level_.unwrap(tensor) : tensor; });
  }
}

}  // namespace graft::internal
