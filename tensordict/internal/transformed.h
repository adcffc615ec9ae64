// is_transformed: whether a tensor is a wrapper that vmap or a derivative put around another one. Wrappers have no rule
// for fused operations and no data that an alias could share.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DispatchKeySet.h>

namespace graft::internal {

/// Is it batched by vmap or wrapped by grad, vjp or jvp? It still is when that transform has ended; an undefined tensor
/// never is.
inline bool is_transformed(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrappers({c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return tensor.key_set().has_any(kWrappers);
}

}  // namespace graft::internal
