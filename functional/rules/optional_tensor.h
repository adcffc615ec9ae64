// Tensors that an operator may be given or not. LibTorch says "not" in two ways.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace graft::internal {

using OptionalTensor = std::optional<at::Tensor>;

inline bool given(const OptionalTensor& tensor) { return tensor.has_value() && tensor->defined(); }

}  // namespace graft::internal
