#include "functional/rules/wrapped_value.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/TensorWrapper.h>

namespace graft::internal {

const at::Tensor* wrapped_value(const at::Tensor& tensor) {
  if (auto* batched = at::functorch::maybeGetBatchedImpl(tensor)) return &batched->value();
  if (auto* wrapper = at::functorch::maybeGetTensorWrapper(tensor)) return &wrapper->value();
  return nullptr;
}

bool is_mapped(const at::Tensor& tensor) {
  for (const at::Tensor* value = &tensor; value != nullptr; value = wrapped_value(*value)) {
    if (at::functorch::isBatchedTensor(*value)) return true;
  }
  return false;
}

bool requires_grad_on_any_level(const at::Tensor& tensor) {
  for (const at::Tensor* value = &tensor; value != nullptr; value = wrapped_value(*value)) {
    if (value->requires_grad()) return true;
  }
  return false;
}

}  // namespace graft::internal
