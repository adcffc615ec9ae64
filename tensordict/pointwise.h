// Arithmetic between trees, and between a tree and a tensor or a number.
//
//   TensorDict step = params - 0.1 * gradients;
//   TensorDict scaled = gradients * factors;   // factors [n] for gradients of batch size [n]
//
// The operators mean what at::Tensor's do, leaf by leaf: leaves broadcast, dtypes are promoted, gradients flow. What
// may stand on the right and how it meets the leaves says operand.h; a second tree is aligned to the first by path. The
// result has the keys and order of the first tree and is locked if that is. Each operator is one fused multi-tensor
// operation; inside vmap and grad, which have no rules for those, it is one operation a leaf.
//
// Every operator throws c10::ValueError listing the keys that only one of two trees has, or for an operand that does
// not broadcast to the batch size. See also unary.h, binary.h and ternary.h for the functions that have no symbol.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include "tensordict/operand.h"
#include "tensordict/tensordict.h"

namespace graft {

TensorDict operator+(const TensorDict& left, const Operand& right);
TensorDict operator-(const TensorDict& left, const Operand& right);
TensorDict operator*(const TensorDict& left, const Operand& right);
TensorDict operator/(const TensorDict& left, const Operand& right);

TensorDict operator+(const at::Scalar& left, const TensorDict& right);
TensorDict operator-(const at::Scalar& left, const TensorDict& right);
TensorDict operator*(const at::Scalar& left, const TensorDict& right);
TensorDict operator/(const at::Scalar& left, const TensorDict& right);

TensorDict operator+(const at::Tensor& left, const TensorDict& right);
TensorDict operator-(const at::Tensor& left, const TensorDict& right);
TensorDict operator*(const at::Tensor& left, const TensorDict& right);
TensorDict operator/(const at::Tensor& left, const TensorDict& right);

TensorDict operator-(const TensorDict& tree);

/// Change the data of the leaves of `left`, which every tree that shares them sees; a tensor that has two names is
/// changed for each of them.
/// \throws c10::ValueError also listing every leaf whose shape or dtype cannot take the result; nothing is changed
///     then.
TensorDict& operator+=(TensorDict& left, const Operand& right);
TensorDict& operator-=(TensorDict& left, const Operand& right);
TensorDict& operator*=(TensorDict& left, const Operand& right);
TensorDict& operator/=(TensorDict& left, const Operand& right);

}  // namespace graft
