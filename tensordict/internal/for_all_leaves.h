// for_all_leaves: one operation on every leaf, fused where LibTorch can, which saves most of the cost of small leaves.
//
// Each operation is given twice: `fused` takes whole lists, `single` what belongs to one leaf. Wrappers of vmap and of
// derivatives have no rules for fused operations, and take the second way.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tensordict/internal/transformed.h"
#include "tensordict/operand.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

using Tensors = std::vector<at::Tensor>;

// A side of an operation is a value per leaf, or one number.
inline bool any_transformed(const at::Scalar&) { return false; }
inline bool any_transformed(const Tensors& values) { return std::any_of(values.begin(), values.end(), is_transformed); }
inline const at::Tensor& leaf_of(const Tensors& values, std::size_t i) { return values[i]; }
inline const at::Scalar& leaf_of(const at::Scalar& number, std::size_t) { return number; }

/// Returns what `single` makes of every leaf.
template <typename Single, typename... Sides>
Tensors for_each_leaf(Single single, const Tensors& first, const Sides&... others) {
  Tensors results;
  results.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) results.push_back(single(first[i], leaf_of(others, i)...));
  return results;
}

/// Returns the results of all leaves.
template <typename Fused, typename Single, typename... Sides>
Tensors for_all_leaves(Fused fused, Single single, const Tensors& first, const Sides&... others) {
  if (first.empty()) return {};
  if (any_transformed(first) || (... || any_transformed(others))) return for_each_leaf(single, first, others...);
  return fused(first, others...);
}

/// Returns `tree` with the results of an operation on it and an operand. `results(left, right)` is given the leaves of
/// the tree, and a number or a list.
template <typename Results>
TensorDict combine(const char* call, const TensorDict& tree, const Operand& operand, Results results) {
  if (operand.number()) return tree.with_values(results(tree.values(), *operand.number()));
  Aligned aligned = align(call, tree, {&operand});
  return tree.with_values(results(aligned.sides[0], aligned.sides[1]), std::move(aligned.batch_size));
}

}  // namespace graft::internal
