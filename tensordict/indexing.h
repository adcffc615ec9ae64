// Indexing the batch dims of a tree, reading and writing, and choosing elements by masks and positions.
//
//   TensorDict head = index(td, {Slice(0, 2), Ellipsis, 0});        // td[0:2, ..., 0]
//   index_put_(td, {3}, row);                                       // td[3] = row
//   TensorDict kept = masked_select(td, reward > 0);
//
// Indices are those of at::Tensor::index: integers, slices, None, Ellipsis, bools, index tensors and masks. They and
// every `dim` reach the batch dims only: Ellipsis stands for the batch dims that are left, and the dims of leaves
// beyond stay as they are, as do batch dims of parts. A mask is a bool tensor whose shape is that of the first batch
// dims, or of all; what it says for an element holds for all that leaves hold there. No result is locked, unless said
// otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensordict/tensordict.h"

namespace at::indexing {
struct TensorIndex;
}

namespace graft {

/// A list in braces, or a vector.
using Indices = c10::ArrayRef<at::indexing::TensorIndex>;

/// Indexes every leaf. The leaves are views where at::Tensor's would be: for integers, slices, None and Ellipsis.
/// Python: `td[indices]`.
/// \throws c10::IndexError if the indices are more than the batch dims, or out of range.
/// \throws c10::ValueError for a mask of another shape.
TensorDict index(const TensorDict& tree, Indices indices);

/// Writes the leaves of `source` to the elements that `index` would return, as copy_ does: dims of size 1 beyond the
/// batch dims broadcast, dtypes are converted. Every tree that shares the leaves sees it. Leaves that only `tree` has
/// stay; those that only `source` has are added, filled with zeros elsewhere, and parts that are new have the batch
/// dims that they have in `source`. A locked tree takes values, no new leaves. Python: `td[indices] = source`.
/// \throws c10::IndexError as index.
/// \throws c10::ValueError if the batch size of `source` is not that of `index(tree, indices)`, and listing every leaf
///     that does not fit or cannot be written to: one that requires grad, or whose elements share memory. The tree is
///     unchanged then.
TensorDict& index_put_(TensorDict& tree, Indices indices, const TensorDict& source);

/// Writes one tensor, which broadcasts to the indexed elements of each leaf. \throws as above.
TensorDict& index_put_(TensorDict& tree, Indices indices, const at::Tensor& value);

/// Writes one number. \throws as above.
TensorDict& index_put_(TensorDict& tree, Indices indices, const at::Scalar& value);

/// Returns `length` elements of a batch dim, from `start` on, which may count from the end. Leaves are views; the
/// result is locked if the tree is.
/// \throws c10::IndexError for a `dim` or a range that is not there.
TensorDict narrow(const TensorDict& tree, int64_t dim, int64_t start, int64_t length);

/// Returns the elements of a batch dim at the positions `index`, a tensor of integers of shape `[n]` or `[]`: leaves
/// `[..., size, rest...] -> [..., n, rest...]`. Leaves are copies.
/// \throws c10::IndexError for a `dim` or a position out of range.
/// \throws c10::ValueError for an index of more dims.
TensorDict index_select(const TensorDict& tree, int64_t dim, const at::Tensor& index);

/// Gathers elements along a batch dim: `out[i][j] = tree[i][index[i][j]]` for `dim` 1 of 2. `index` is a tensor of
/// int64 with one dim for each batch dim and becomes the batch size. Leaves are copies.
/// \throws c10::IndexError for a `dim` out of range, c10::Error for a position out of range.
/// \throws c10::ValueError if `index` has another number of dims, or is larger than the tree in a dim but `dim`.
TensorDict gather(const TensorDict& tree, int64_t dim, const at::Tensor& index);

/// Returns the elements where `mask` is true: leaves `[mask dims..., rest...] -> [n, rest...]`. Leaves are copies.
/// \throws c10::ValueError for a mask of another shape or dtype.
TensorDict masked_select(const TensorDict& tree, const at::Tensor& mask);

/// Returns copies of the leaves with `value` where `mask` is true.
/// \throws c10::ValueError for a mask of another shape or dtype.
TensorDict masked_fill(const TensorDict& tree, const at::Tensor& mask, const at::Scalar& value);

/// Returns the elements of `tree` where `condition`, a mask, is true, those of `other` elsewhere; dtypes are promoted.
/// Python: `tree.where(condition, other)`.
/// \throws c10::ValueError for a mask of another shape or dtype, if the batch sizes differ, and listing every key that
///     only one of the trees has and every leaf of another shape.
TensorDict where(const at::Tensor& condition, const TensorDict& tree, const TensorDict& other);

/// The same with a number elsewhere.
TensorDict where(const at::Tensor& condition, const TensorDict& tree, const at::Scalar& other);

}  // namespace graft
