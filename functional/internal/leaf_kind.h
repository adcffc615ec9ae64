// What kind of tensor a leaf is, as far as it decides how it may be installed.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensordict/transformed.h"

namespace graft::internal {

/// Would derivatives be lost if the tensor were replaced by an alias of its data?
inline bool carries_derivatives(const at::Tensor& tensor) {
  return tensor.requires_grad() || is_transformed(tensor) || tensor._fw_grad(/*level=*/0).defined();
}

}  // namespace graft::internal
