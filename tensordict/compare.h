// Comparisons of trees, and the logic of their results.
//
//   TensorDict small = logical_and(lt(td, 1), gt(td, -1));
//   if (any(isnan(gradients)).item<bool>()) ...      // any and all: reduce.h
//
// Each function means what at::Tensor's function of that name means, leaf by leaf, and returns leaves of bools, unless
// told otherwise. What may stand on the right and how it meets the leaves says operand.h. The result has the keys and
// order of the tree.
//
// Those with an operand throw c10::ValueError listing the keys that only one of two trees has, or for an operand that
// does not broadcast to the batch size. Whether two trees are equal as a whole: equal and allclose in structure.h.
#pragma once

#include "tensordict/operand.h"
#include "tensordict/tensordict.h"

namespace graft {

// Python: `==`, `!=`, `<`, `<=`, `>` and `>=`. The result is not locked.
TensorDict eq(const TensorDict& left, const Operand& right);
TensorDict ne(const TensorDict& left, const Operand& right);
TensorDict lt(const TensorDict& left, const Operand& right);
TensorDict le(const TensorDict& left, const Operand& right);
TensorDict gt(const TensorDict& left, const Operand& right);
TensorDict ge(const TensorDict& left, const Operand& right);

// Zeros are false, all else is true. The result is locked if the tree is.
TensorDict logical_and(const TensorDict& left, const Operand& right);
TensorDict logical_or(const TensorDict& left, const Operand& right);
TensorDict logical_xor(const TensorDict& left, const Operand& right);
TensorDict logical_not(const TensorDict& tree);

// Bit by bit; leaves are of whole numbers or bools. The result has their dtypes and is locked if the tree is. Python:
// `&`,
// `|`, `^` and `~`.
TensorDict bitwise_and(const TensorDict& left, const Operand& right);
TensorDict bitwise_or(const TensorDict& left, const Operand& right);
TensorDict bitwise_xor(const TensorDict& left, const Operand& right);
TensorDict bitwise_not(const TensorDict& tree);

// Which elements are such numbers. The result is locked if the tree is.
TensorDict isfinite(const TensorDict& tree);
TensorDict isnan(const TensorDict& tree);
TensorDict isneginf(const TensorDict& tree);
TensorDict isposinf(const TensorDict& tree);
TensorDict isreal(const TensorDict& tree);

}  // namespace graft
