#include "functional/internal/grad_call.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <string>

namespace graft::internal {
namespace {

bool has_derivative(const Tensor& tensor) {
  return tensor.defined() && (tensor.is_floating_point() || tensor.is_complex());
}

}  // namespace

void check_differentiable(std::string_view call, const ArgumentParts& arguments,
                          const std::vector<std::size_t>& differentiated) {
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
  TORCH_CHECK_TYPE(text.empty(), call, ": these tensors have no derivative:", text,
                   "\nSplit them off and pass them as an argument that is not differentiated.");
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

void GradCall::leave(const std::vector<TreePart>& parts) const {
  for (const TreePart& part : parts) {
    replace_tensors(part, [&](const Tensor& tensor) { return tensor.defined() ? level_.unwrap(tensor) : tensor; });
  }
}

}  // namespace graft::internal
