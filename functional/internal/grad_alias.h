// Another tensor object over a leaf's storage, with a `requires_grad` flag of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/container/flat_hash_map.h"

namespace graft::internal {

/// Returns an alias that requires grad and shares the leaf's version counter, so that autograd still notices writes
/// through either. (`detach` would be seen by active transforms, and `variable_data` has a counter of its own.)
inline at::Tensor alias_with_grad(const at::Tensor& leaf) {
  at::TensorImpl* impl = leaf.unsafeGetTensorImpl();
  at::Tensor alias(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
  alias.set_requires_grad(true);
  return alias;
}

using AliasMap = absl::flat_hash_map<const at::TensorImpl*, at::Tensor>;

/// The same, one alias for each leaf, so that a leaf that is used twice stays one tensor.
inline const at::Tensor& alias_with_grad(const at::Tensor& leaf, AliasMap& known) {
  at::Tensor& alias = known[leaf.unsafeGetTensorImpl()];
  if (!alias.defined()) alias = alias_with_grad(leaf);
  return alias;
}

}  // namespace graft::internal
