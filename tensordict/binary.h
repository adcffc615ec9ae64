// Functions of a tree and an operand that have no symbol: steps, powers, the larger and the smaller of two, remainders.
//
//   TensorDict stepped = sub(params, gradients, /*alpha=*/0.1);
//   TensorDict bounded = clamp(gradients, -1, 1);
//   maximum_(best, scores);
//
// What may stand on the right and how it meets the leaves says operand.h. Each means what at::Tensor's function of that
// name means, leaf by leaf; the result has the keys and order of the tree and is locked if that is. The functions that
// end in an underscore change the data of the leaves, which every tree that shares them sees, and return the tree.
//
// All throw c10::ValueError listing the keys that only one of two trees has, or for an operand that does not broadcast
// to the batch size; those in place also listing every leaf that cannot take the result, and change
// nothing then.
#pragma once

#include <c10/core/Scalar.h>

#include "tensordict/operand.h"
#include "tensordict/tensordict.h"

namespace graft {

/// Return `tree + alpha * other` and `tree - alpha * other`, in one pass.
/// \throws c10::ValueError also listing every leaf of whole numbers, if `alpha` is none.
TensorDict add(const TensorDict& tree, const Operand& other, const at::Scalar& alpha = 1);
TensorDict sub(const TensorDict& tree, const Operand& other, const at::Scalar& alpha = 1);
const TensorDict& add_(const TensorDict& tree, const Operand& other, const at::Scalar& alpha = 1);
const TensorDict& sub_(const TensorDict& tree, const Operand& other, const at::Scalar& alpha = 1);

TensorDict pow(const TensorDict& tree, const Operand& exponent);
const TensorDict& pow_(const TensorDict& tree, const Operand& exponent);

/// Returns `base` to the power of every leaf.
TensorDict pow(const at::Scalar& base, const TensorDict& exponent);

TensorDict maximum(const TensorDict& tree, const Operand& other);
TensorDict minimum(const TensorDict& tree, const Operand& other);
const TensorDict& maximum_(const TensorDict& tree, const Operand& other);
const TensorDict& minimum_(const TensorDict& tree, const Operand& other);

/// Return the leaves, those below `min` or above `max` replaced by it. If `min` is above `max`, that is `max`.
TensorDict clamp(const TensorDict& tree, const Operand& min, const Operand& max);
TensorDict clamp_min(const TensorDict& tree, const Operand& min);
TensorDict clamp_max(const TensorDict& tree, const Operand& max);
const TensorDict& clamp_(const TensorDict& tree, const Operand& min, const Operand& max);
const TensorDict& clamp_min_(const TensorDict& tree, const Operand& min);
const TensorDict& clamp_max_(const TensorDict& tree, const Operand& max);

/// Return what is left of each element when `divisor` has been taken from it a whole number of times; it has the sign
/// of the divisor. Python: `mod`.
TensorDict remainder(const TensorDict& tree, const Operand& divisor);
const TensorDict& remainder_(const TensorDict& tree, const Operand& divisor);

}  // namespace graft
