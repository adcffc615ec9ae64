// Joining trees along a batch dim, and taking them apart there.
//
//   TensorDict all = stack({first, second});                // leaves [...] -> [2, ...]
//   std::vector<TensorDict> back = unbind(all);
//   std::vector<TensorDict> parts = split(epoch, 32);       // the last may be shorter
//
// `dim` counts batch dims, also from the end: the dims of leaves beyond are out of reach. Joined leaves are copies and
// the joined tree is not locked; parts are views. What parts of a tree have as batch dims of their own stays.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

/// Stacks trees along a new batch dim: leaves `[b..., rest...] -> [b..., n, ...b, rest...]`. Python: torch.stack.
/// \param dim where the new dim goes, from -batch_dims - 1 to batch_dims. (Python also takes dims beyond the batch.)
/// \returns a tree with the table of keys of the first member; the others are aligned to it by path.
/// \throws c10::ValueError if there is no member, and listing for all members every key, batch size, shape, dtype and
///     device that is not as in the first one.
/// \throws c10::IndexError for a `dim` out of range.
/// See also unbind, its inverse.
TensorDict stack(const std::vector<TensorDict>& members, int64_t dim = 0);

/// Joins trees along a batch dim that they have, from -batch_dims to batch_dims - 1: leaves
/// `[b0, ...], [b1, ...] -> [b0 + b1, ...]`. Python: torch.cat.
/// \throws as stack; members may differ in the size of `dim`.
/// See also split, its inverse.
TensorDict cat(const std::vector<TensorDict>& members, int64_t dim = 0);

/// Takes a tree apart along a batch dim, which the parts no longer have. They are not locked.
/// \throws c10::IndexError for a `dim` out of range.
/// See also stack, its inverse.
std::vector<TensorDict> unbind(const TensorDict& tree, int64_t dim = 0);

/// Splits a batch dim into parts of `size`; the last has what is left. The parts are locked if the tree is.
/// \throws c10::ValueError if `size` is not positive.
/// \throws c10::IndexError for a `dim` out of range.
std::vector<TensorDict> split(const TensorDict& tree, int64_t size, int64_t dim = 0);

/// The same for parts of these sizes, also for a list of one: `split(tree, {4})`.
/// \throws c10::ValueError if a size is negative, or their sum is not the size of `dim`.
std::vector<TensorDict> split(const TensorDict& tree, at::IntArrayRef sizes, int64_t dim = 0);
std::vector<TensorDict> split(const TensorDict& tree, std::initializer_list<int64_t> sizes, int64_t dim = 0);

/// Splits a batch dim into at most `chunks` parts, all of one size but the last.
/// \throws c10::ValueError if `chunks` is not positive.
/// \throws c10::IndexError for a `dim` out of range.
std::vector<TensorDict> chunk(const TensorDict& tree, int64_t chunks, int64_t dim = 0);

/// Splits a batch dim into exactly `sections` parts, whose sizes differ by one at most.
/// \throws c10::ValueError if `sections` is not positive.
/// \throws c10::IndexError for a `dim` out of range.
std::vector<TensorDict> tensor_split(const TensorDict& tree, int64_t sections, int64_t dim = 0);

/// Splits a batch dim before each of `indices`, as slices do: a negative one counts from the end, one beyond the end
/// leaves an empty part. A list of one is a list too: `tensor_split(tree, {1})`.
std::vector<TensorDict> tensor_split(const TensorDict& tree, at::IntArrayRef indices, int64_t dim = 0);
std::vector<TensorDict> tensor_split(const TensorDict& tree, std::initializer_list<int64_t> indices, int64_t dim = 0);

}  // namespace graft
