// What LibTorch does to one tensor, done to every leaf: new values of the same kind, copies, flags, other dtypes and
// devices. Each function means what at::Tensor's function of that name means; keys and batch size stay.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensordict/tensordict.h"

namespace graft {

/// Returns new leaves of the shapes, dtypes and devices of `tree`, filled with zeros; none requires grad.
TensorDict zeros_like(const TensorDict& tree);

/// The same, filled with ones.
TensorDict ones_like(const TensorDict& tree);

/// The same, filled with `fill`.
TensorDict full_like(const TensorDict& tree, const at::Scalar& fill);

/// Returns leaves that share storage with those of `tree` and have no gradient history.
TensorDict detach(const TensorDict& tree);

/// Returns copies of the leaves; gradients flow through the copy.
TensorDict clone(const TensorDict& tree);

/// Returns leaves of another dtype; those that have it already are shared.
TensorDict to(const TensorDict& tree, at::ScalarType dtype);

/// Returns leaves on another device; those that are there already are shared.
TensorDict to(const TensorDict& tree, at::Device device);

/// Sets the flag of the tensors themselves, so every tree that shares them sees it.
/// \throws c10::ValueError listing every leaf whose dtype has no gradients, if `requires_grad`; no flag is changed.
const TensorDict& requires_grad_(const TensorDict& tree, bool requires_grad = true);

}  // namespace graft
