// Distances between two trees, leaf by leaf: losses for trees of predictions and of what they should have been.
//
//   TensorDict losses = mse_loss(predicted, target);                                     // a number for each leaf
//   at::Tensor loss = global_sum(losses);
//   TensorDict by_sample = mean(mse_loss(predicted, target, at::Reduction::None), kFeatureDims);
//
// Each function means what torch's function of that name means, and gradients flow through it. With
// `at::Reduction::Mean` or `Sum` each leaf becomes one number and the batch size of the result is {}; with
// `at::Reduction::None` leaves keep their shapes. The result has the keys and order of `input`, and is not locked.
//
// All throw c10::ValueError listing every leaf of no floating dtype, every key that only one of the trees has, and every
// leaf of another shape: torch
// broadcasts [n] to [n, 1], which makes of n errors a table of n * n.
//
// Python: torch.nn.functional's functions for TensorDicts, where smooth_l1_loss ignores `beta`.
#pragma once

#include <ATen/core/Reduction.h>

#include "tensordict/tensordict.h"

namespace graft {

/// Returns the squared differences.
TensorDict mse_loss(const TensorDict& input, const TensorDict& target,
                    at::Reduction::Reduction reduction = at::Reduction::Mean);

/// Returns the absolute differences.
TensorDict l1_loss(const TensorDict& input, const TensorDict& target,
                   at::Reduction::Reduction reduction = at::Reduction::Mean);

/// Returns `d * d / (2 * beta)` for absolute differences `d` below `beta`, and `d - beta / 2` for others.
/// \throws c10::Error if `beta` is negative.
TensorDict smooth_l1_loss(const TensorDict& input, const TensorDict& target,
                          at::Reduction::Reduction reduction = at::Reduction::Mean, double beta = 1);

}  // namespace graft
