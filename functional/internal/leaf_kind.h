// What kind of tensor a leaf is, as far as it decides how it may be installed.
#pragma once

#include <ATen/core/Tensor.h>

namespace graft::internal {

/// Is it batched by vmap or wrapped by grad, vjp or jvp?
inline bool is_transformed(const at::Tensor& tensor) {
  const c10::DispatchKeySet keys = tensor.unsafeGetTensorImpl()->key_set();
  return keys.has(c10::DispatchKey::FuncTorchBatched) || keys.has(c10::DispatchKey::FuncTorchGradWrapper);
}

/// Would derivatives be lost if the tensor were replaced by an alias of its data?
inline bool carries_derivatives(const at::Tensor& tensor) {
  return tensor.requires_grad() || is_transformed(tensor) || tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace graft::internal
