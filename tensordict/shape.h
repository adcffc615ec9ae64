// Rearranging the batch dims of a tree: view, permute, expand, repeat, flip and their like.
//
//   TensorDict flat = reshape(rollout, {-1});                // batch size [time, env] -> [time * env]
//   TensorDict by_env = transpose(rollout, 0, 1);            // [time, env] -> [env, time]
//   TensorDict copies = expand(params, {8, -1});             // [n] -> [8, n], without memory
//
// Each function means what at::Tensor's function of that name means for a tensor of the batch size. Every dim counts
// batch dims, also from the end; the dims of leaves beyond are out of reach, and parts keep batch dims of their own.
// The result is locked if the tree is, unless said otherwise. Every function throws c10::IndexError for a dim that is
// no batch dim, and c10::ValueError for sizes that do not fit; nothing is changed then.
// See join.h for stack and split, and indexing.h for index and gather.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "tensordict/tensordict.h"

namespace graft {

// --- The same elements in another shape

/// Views the batch dims as `sizes`, one of which may be -1: what is left for it. Leaves are views.
/// \throws c10::ValueError listing every leaf whose strides do not allow it; see reshape.
TensorDict view(const TensorDict& tree, at::IntArrayRef sizes);

/// The same, with a copy of each leaf whose strides do not allow a view.
TensorDict reshape(const TensorDict& tree, at::IntArrayRef sizes);

/// Joins the batch dims from `start_dim` to `end_dim` into one, as reshape does. Without batch dims the result has one
/// of size 1.
TensorDict flatten(const TensorDict& tree, int64_t start_dim = 0, int64_t end_dim = -1);

/// Splits a batch dim into dims of `sizes`, one of which may be -1. Leaves are views.
TensorDict unflatten(const TensorDict& tree, int64_t dim, at::IntArrayRef sizes);

/// Drops all batch dims of size 1. Leaves are views.
TensorDict squeeze(const TensorDict& tree);

/// Drops the batch dim `dim` if its size is 1. Leaves are views.
TensorDict squeeze(const TensorDict& tree, int64_t dim);

/// Adds a batch dim of size 1 at `dim`, from -batch_dims - 1 to batch_dims. Leaves are views.
TensorDict unsqueeze(const TensorDict& tree, int64_t dim);

/// Adds batch dims of size 1 in front, until there are one, two or three. Leaves are views. (As in tensordict: the
/// functions of torch add some of them at the end.)
TensorDict atleast_1d(const TensorDict& tree);
TensorDict atleast_2d(const TensorDict& tree);
TensorDict atleast_3d(const TensorDict& tree);

// --- Another order of dims. Leaves are views.

/// Puts batch dim `dims[i]` at place `i`; all batch dims have to be named. (Python takes fewer and ignores them.)
TensorDict permute(const TensorDict& tree, at::IntArrayRef dims);

/// Exchanges two batch dims.
TensorDict transpose(const TensorDict& tree, int64_t dim0, int64_t dim1);
TensorDict swapaxes(const TensorDict& tree, int64_t dim0, int64_t dim1);

/// Moves the batch dims `source` to the places `destination`; the others keep their order.
TensorDict movedim(const TensorDict& tree, at::IntArrayRef source, at::IntArrayRef destination);

// --- More of the same elements

/// Expands batch dims of size 1 to `sizes` and adds batch dims in front; -1 keeps a size. Leaves are views whose
/// elements share memory: do not write to them.
TensorDict expand(const TensorDict& tree, at::IntArrayRef sizes);

/// Expands to the batch size of `other`.
TensorDict expand_as(const TensorDict& tree, const TensorDict& other);

/// Repeats the tree `repeats[i]` times along batch dim `i`, one number for each dim. Leaves are copies.
TensorDict repeat(const TensorDict& tree, at::IntArrayRef repeats);

/// The same; missing numbers in front are 1, further ones add batch dims in front.
TensorDict tile(const TensorDict& tree, at::IntArrayRef repeats);

/// Repeats each element along `dim` `repeats` times in a row; without `dim` the batch dims are flattened. Leaves are
/// copies.
TensorDict repeat_interleave(const TensorDict& tree, int64_t repeats, std::optional<int64_t> dim = std::nullopt);

/// The same with a number of repeats for each element along `dim`: a tensor of integers of shape `[size of dim]`.
TensorDict repeat_interleave(const TensorDict& tree, const at::Tensor& repeats,
                             std::optional<int64_t> dim = std::nullopt);

/// Pads batch dims with `value`: `{before0, after0, before1, ...}` from the first batch dim on, a negative number
/// crops. Leaves are copies and the result is not locked. Python: tensordict.pad.
TensorDict pad(const TensorDict& tree, at::IntArrayRef pad_size, const at::Scalar& value = 0);

// --- Another order of elements. Leaves are copies.

/// Reverses the order along each of `dims`.
TensorDict flip(const TensorDict& tree, at::IntArrayRef dims);

/// Moves elements along `dims[i]` by `shifts[i]`, those at the end back to the front; without `dims`, which takes one
/// shift, as if the batch dims were flattened.
TensorDict roll(const TensorDict& tree, at::IntArrayRef shifts, at::IntArrayRef dims = {});

/// Rotates by 90 degrees `k` times in the plane of two batch dims, from the first towards the second.
TensorDict rot90(const TensorDict& tree, int64_t k = 1, at::IntArrayRef dims = {0, 1});

}  // namespace graft
