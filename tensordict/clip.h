// Clipping gradients: scaling a whole tree down until its norm is at most a bound.
//
//   TensorDict step = clip_by_global_norm(gradients, 1.0);
//   TensorDict each = clip_by_global_norm(per_sample, 1.0, {.batch_dims = 1});   // every sample on its own
//   at::Tensor length = clip_by_global_norm_(gradients, 1.0);                    // in place, as an optimiser wants it
//
// Every leaf is multiplied by the one factor min(1, max_norm / (norm + 1e-6)), whose dtype does not change that of the
// leaf. A norm that is not finite makes a factor of zero or NaN, unless that is to throw.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensordict/tensordict.h"

namespace graft {

struct ClipOptions {
  /// How many of the first dims of every leaf stand for trees of their own, each clipped by its norm; see global_norm.
  int64_t batch_dims = 0;
  /// Throw if a norm is not finite? Asking for its value waits for the device, and cannot be inside vmap.
  bool error_if_nonfinite = false;
};

/// Returns the tree scaled. Gradients flow through the factor too; inside vmap and grad it works as outside.
/// \throws c10::ValueError as global_norm; c10::Error for a norm that is not finite, if that is asked for.
TensorDict clip_by_global_norm(const TensorDict& tree, double max_norm, const ClipOptions& options = {});

/// Scales the data of the leaves, which every tree that shares them sees, without a gradient history; a tensor under
/// two names is scaled once. Python: torch.nn.utils.clip_grad_norm_.
/// \returns the norm before.
/// \throws as above, and c10::ValueError listing every leaf that is expanded; nothing is changed then.
at::Tensor clip_by_global_norm_(const TensorDict& tree, double max_norm, const ClipOptions& options = {});

}  // namespace graft
