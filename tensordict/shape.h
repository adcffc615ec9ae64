// Joining trees along a batch dim, and taking them apart or indexing them there.
//
// The dims of leaves beyond the batch dims are the leaves' own affair: no function here touches them.
//
//   TensorDict all = stack({first, second});                // leaves [...] -> [2, ...]
//   std::vector<TensorDict> back = unbind(all);
//   TensorDict head = index(all, {Slice(0, 1)});
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tensordict/tensordict.h"

namespace at::indexing {
struct TensorIndex;
}

namespace graft {

/// Stacks trees along a new batch dim: leaves `[b..., rest...] -> [b..., n, ...b, rest...]`.
/// \param dim where the new dim goes, from -batch_dims - 1 to batch_dims.
/// \returns a tree with the table of keys of the first member; the leaves are copies.
/// \throws c10::ValueError if there is no member, and listing for all members every key, batch size, shape, dtype and
///     device that is not as in the first one.
/// \throws c10::IndexError for a `dim` out of range.
/// See also unbind, its inverse.
TensorDict stack(const std::vector<TensorDict>& members, int64_t dim = 0);

/// Joins trees along a batch dim that they have, from -batch_dims to batch_dims - 1: leaves
/// `[b0, ...], [b1, ...] -> [b0 + b1, ...]`.
/// \throws as stack; members may differ in the size of `dim`.
TensorDict cat(const std::vector<TensorDict>& members, int64_t dim = 0);

/// Takes a tree apart along a batch dim. The leaves are views.
/// \throws c10::IndexError for a `dim` out of range.
/// See also stack, its inverse.
std::vector<TensorDict> unbind(const TensorDict& tree, int64_t dim = 0);

/// Indexes the batch dims of every leaf, as at::Tensor::index does. The leaves are views where at::Tensor's would be:
/// for integers, slices, None and Ellipsis, which stands for the batch dims that are left.
/// \throws c10::IndexError if that is more than the batch dims have, or out of range.
TensorDict index(const TensorDict& tree, std::initializer_list<at::indexing::TensorIndex> indices);

}  // namespace graft
