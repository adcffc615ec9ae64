// Another tensor object over a leaf's storage, with a `requires_grad` flag of its own.
#pragma once

#include <ATen/core/Tensor.h>

namespace graft::internal {

/// Returns an alias that requires grad and shares the leaf's version counter, so that autograd still notices writes
/// through either. (`detach` would be seen by active transforms, and `variable_data` has a counter of its own.)
inline at::Tensor alias_with_grad(const at::Tensor& leaf) {
  at::TensorImpl* impl = leaf.unsafeGetTensorImpl();
  at::Tensor alias(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
  alias.set_requires_grad(true);
  return alias;
}

}  // namespace graft::internal
