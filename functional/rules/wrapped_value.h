// Looks through the wrappers of levels.
#pragma once

#include <ATen/core/Tensor.h>

namespace graft::internal {

/// Returns the tensor that `tensor` wraps, or nullptr. It lives as long as `tensor` does.
const at::Tensor* wrapped_value(const at::Tensor& tensor);

/// Says whether some level maps over `tensor`.
bool is_mapped(const at::Tensor& tensor);

/// Says whether some level, or ordinary autograd, will differentiate through `tensor`.
bool requires_grad_on_any_level(const at::Tensor& tensor);

}  // namespace graft::internal
