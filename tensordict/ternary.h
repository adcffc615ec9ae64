// Functions of a tree and two operands: what lies between two trees, and sums with products and quotients.
//
//   TensorDict average = lerp(old, params, 0.01);
//   addcdiv_(params, momenta, scales, -0.1);      // a step of an optimiser
//
// What may stand in place of the operands and how it meets the leaves says operand.h. Each means what at::Tensor's
// function of that name means, leaf by leaf; the result has the keys and order of the first tree and is locked if that
// is. The functions that end in an underscore change the data of the leaves of the first tree, which every tree that
// shares them sees, and return it.
//
// All throw c10::ValueError listing the keys that only one of two trees has, or for an operand that does not broadcast
// to the batch size; those in place also listing every leaf that cannot take the result, and change
// nothing then.
#pragma once

#include <c10/core/Scalar.h>

#include "tensordict/operand.h"
#include "tensordict/tensordict.h"

namespace graft {

/// Returns `start + weight * (end - start)`.
TensorDict lerp(const TensorDict& start, const Operand& end, const Operand& weight);
const TensorDict& lerp_(const TensorDict& start, const Operand& end, const Operand& weight);

/// Returns `tree + value * left * right`.
TensorDict addcmul(const TensorDict& tree, const Operand& left, const Operand& right, const at::Scalar& value = 1);
const TensorDict& addcmul_(const TensorDict& tree, const Operand& left, const Operand& right,
                           const at::Scalar& value = 1);

/// Returns `tree + value * left / right`.
TensorDict addcdiv(const TensorDict& tree, const Operand& left, const Operand& right, const at::Scalar& value = 1);
const TensorDict& addcdiv_(const TensorDict& tree, const Operand& left, const Operand& right,
                           const at::Scalar& value = 1);

}  // namespace graft
