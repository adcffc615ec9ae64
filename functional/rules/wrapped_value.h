// Looks through the wrappers of levels.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/TensorWrapper.h>

namespace graft::internal {

/// Returns the tensor that `tensor` wraps, or nullptr. It lives as long as `tensor` does.
inline const at::Tensor* wrapped_value(const at::Tensor& tensor) {
  if (auto* batched = at::functorch::maybeGetBatchedImpl(tensor)) return &batched->value();
  if (auto* wrapper = at::functorch::maybeGetTensorWrapper(tensor)) return &wrapper->value();
  return nullptr;
}

}  // namespace graft::internal
