// Arithmetic between trees, and between a tree and a number.
//
//   TensorDict step = params - 0.1 * gradients;
//
// The operators mean what at::Tensor's do, leaf by leaf: leaves broadcast, dtypes are promoted, gradients flow. The
// second tree is aligned to the first by path; the result has the keys, order and batch size of the first. Each
// operator is one fused multi-tensor operation; inside vmap and grad, which have no rules for those, it is one
// operation a leaf.
//
// Every operator between trees throws c10::ValueError listing the keys that only one of them has.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensordict/tensordict.h"

namespace graft {

TensorDict operator+(const TensorDict& left, const TensorDict& right);
TensorDict operator-(const TensorDict& left, const TensorDict& right);
TensorDict operator*(const TensorDict& left, const TensorDict& right);
TensorDict operator/(const TensorDict& left, const TensorDict& right);

TensorDict operator+(const TensorDict& left, const at::Scalar& right);
TensorDict operator-(const TensorDict& left, const at::Scalar& right);
TensorDict operator*(const TensorDict& left, const at::Scalar& right);
TensorDict operator/(const TensorDict& left, const at::Scalar& right);

TensorDict operator+(const at::Scalar& left, const TensorDict& right);
TensorDict operator-(const at::Scalar& left, const TensorDict& right);
TensorDict operator*(const at::Scalar& left, const TensorDict& right);
TensorDict operator/(const at::Scalar& left, const TensorDict& right);

TensorDict operator-(const TensorDict& tree);

/// Changes the data of the leaves of `left`, which every tree that shares them sees.
/// \throws c10::ValueError also listing every leaf of `right` that does not broadcast to the shape of its partner or
///     whose dtype does not convert to it; nothing is changed then.
TensorDict& operator+=(TensorDict& left, const TensorDict& right);
TensorDict& operator-=(TensorDict& left, const TensorDict& right);
TensorDict& operator*=(TensorDict& left, const TensorDict& right);
TensorDict& operator/=(TensorDict& left, const TensorDict& right);

/// Changes the data of the leaves of `left`, as above.
TensorDict& operator+=(TensorDict& left, const at::Scalar& right);
TensorDict& operator-=(TensorDict& left, const at::Scalar& right);
TensorDict& operator*=(TensorDict& left, const at::Scalar& right);
TensorDict& operator/=(TensorDict& left, const at::Scalar& right);

/// Returns `start + weight * (end - start)`, leaf by leaf.
TensorDict lerp(const TensorDict& start, const TensorDict& end, const at::Scalar& weight);

}  // namespace graft
