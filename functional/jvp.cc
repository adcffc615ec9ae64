#include "functional/jvp.h"

#include <ATen/ops/zeros_like.h>

namespace graft::internal {

JvpCall::JvpCall(const std::vector<TreePart>& arguments, const std::vector<TreePart>& tangents) {
  const std::vector<Tensor> directions = tensors_like("jvp", "tangents", "arguments", tangents, arguments);
  std::vector<Tensor> values = tensors_of(arguments);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = level_.with_tangent(values[i], directions[i]);
  set_tensors(arguments, std::move(values));
}

void JvpCall::leave(const std::vector<TreePart>& results, const std::vector<TreePart>& tangents) const {
  const auto tangent_of = [&](const Tensor& result) {
    if (!result.defined()) return result;
    const Tensor tangent = level_.tangent(result);
    // What an operator returns here is a value of the level.
    return tangent.defined() ? tangent : level_.value(at::zeros_like(level_.value(result)));
  };
  for (const TreePart& part : tangents) replace_tensors(part, tangent_of);
  leave(results);
}

void JvpCall::leave(const std::vector<TreePart>& parts) const {
  for (const TreePart& part : parts) {
    replace_tensors(part, [&](const Tensor& tensor) { return tensor.defined() ? level_.value(tensor) : tensor; });
  }
}

}  // namespace graft::internal
