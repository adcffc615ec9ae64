// Trees of new values in the form of another, and filling the leaves that are there.
//
//   TensorDict momenta = zeros_like(params);
//   TensorDict buffer = new_zeros(step, {1000});            // the same leaves, of batch size [1000]
//
// Each function means what at::Tensor's function of that name means. Keys stay, and shapes, dtypes and devices are
// those of the leaves; none of the new leaves requires grad, each is a tensor of its own.
#pragma once

#include <c10/core/Scalar.h>

#include <cstdint>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

// Of the batch sizes of the tree, and locked if it is.

TensorDict zeros_like(const TensorDict& tree);
TensorDict ones_like(const TensorDict& tree);
TensorDict full_like(const TensorDict& tree, const at::Scalar& fill);
/// Of values that say nothing.
TensorDict empty_like(const TensorDict& tree);
/// Uniform in [0, 1). \throws c10::ValueError listing every leaf that has no floating or complex dtype.
TensorDict rand_like(const TensorDict& tree);
/// Of mean 0 and variance 1. \throws as rand_like.
TensorDict randn_like(const TensorDict& tree);

/// The same in other batch dims: those of the tree make way for `batch_size`, what leaves have beyond stays. The
/// results are not locked.
TensorDict new_zeros(const TensorDict& tree, const std::vector<int64_t>& batch_size);
TensorDict new_ones(const TensorDict& tree, const std::vector<int64_t>& batch_size);
TensorDict new_full(const TensorDict& tree, const std::vector<int64_t>& batch_size, const at::Scalar& fill);
TensorDict new_empty(const TensorDict& tree, const std::vector<int64_t>& batch_size);

/// Set all elements of the leaves, which every tree that shares them sees.
/// \throws c10::ValueError listing every leaf that autograd guards, that is expanded, or whose dtype does not have the
///     number; nothing is changed then.
const TensorDict& zero_(const TensorDict& tree);
const TensorDict& fill_(const TensorDict& tree, const at::Scalar& value);

}  // namespace graft
