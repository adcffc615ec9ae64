// Trees that have not the same keys, made ready for an operation that takes one tree beside another.
//
//   const auto [a, b] = keep_common(totals, update);         // what both have
//   TensorDict sum = a + b;
//
//   const auto [c, d] = fill_missing(totals, update, 0);     // what either has
//   TensorDict all = c + d;
//
// Operations on two trees throw if their keys differ, for a key that is misspelt would be lost otherwise. Python:
// `default="intersection"` and `default=value` of the arithmetic of TensorDict. No result is locked; leaves are shared.
#pragma once

#include <c10/core/Scalar.h>

#include <utility>

#include "tensordict/tensordict.h"

namespace graft {

/// Returns both trees without the leaves that the other one does not have.
std::pair<TensorDict, TensorDict> keep_common(const TensorDict& left, const TensorDict& right);

/// Returns both trees with the leaves that only the other one has, filled with `value`: of the shape, dtype and device
/// there, in the batch dims here. They come last.
/// \throws c10::ValueError listing every path that is a leaf in one tree and a part in the other, every leaf that does
///     not start with the batch dims of the part that it comes into, and every one whose dtype does not have `value`.
std::pair<TensorDict, TensorDict> fill_missing(const TensorDict& left, const TensorDict& right,
                                               const at::Scalar& value);

}  // namespace graft
