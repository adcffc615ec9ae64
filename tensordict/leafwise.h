// What LibTorch does to one tensor, done to every leaf: new values of the same kind, copies, flags, other dtypes and
// devices. Each function means what at::Tensor's function of that name means; keys and batch sizes stay.
//
// Results are locked if the tree is, where they stand for the same leaves (detach, data, to, the *_like) and not where
// they are new ones (clone, contiguous, the new_*), as in Python. Where a tensor is copied or given another dtype,
// device or layout, one that has two names is still one tensor under both in the result; Python makes two.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

// --- New values. They have the shapes, dtypes and devices of the leaves; none requires grad, each is a tensor of its
// own.

TensorDict zeros_like(const TensorDict& tree);
TensorDict ones_like(const TensorDict& tree);
TensorDict full_like(const TensorDict& tree, const at::Scalar& fill);
/// Of values that say nothing.
TensorDict empty_like(const TensorDict& tree);
/// Uniform in [0, 1). \throws c10::ValueError listing every leaf that has no floating or complex dtype.
TensorDict rand_like(const TensorDict& tree);
/// Of mean 0 and variance 1. \throws as rand_like.
TensorDict randn_like(const TensorDict& tree);

/// The same in other batch dims: those of the tree make way for `batch_size`, what leaves have beyond stays.
TensorDict new_zeros(const TensorDict& tree, const std::vector<int64_t>& batch_size);
TensorDict new_ones(const TensorDict& tree, const std::vector<int64_t>& batch_size);
TensorDict new_full(const TensorDict& tree, const std::vector<int64_t>& batch_size, const at::Scalar& fill);
TensorDict new_empty(const TensorDict& tree, const std::vector<int64_t>& batch_size);

/// Set all elements of the leaves, which every tree that shares them sees.
/// \throws c10::ValueError listing every leaf that autograd does not let one write to; nothing is changed then.
const TensorDict& zero_(const TensorDict& tree);
const TensorDict& fill_(const TensorDict& tree, const at::Scalar& value);

// --- Copies and aliases

/// Returns copies of the leaves; gradients flow through the copy.
TensorDict clone(const TensorDict& tree);

/// Returns leaves that share storage with those of `tree` and have no gradient history.
TensorDict detach(const TensorDict& tree);

/// The same, but autograd does not see what is written to the leaves: it may change values that a backward still needs.
TensorDict data(const TensorDict& tree);

/// Returns leaves whose elements lie in the order of their dims; those that do already are shared.
TensorDict contiguous(const TensorDict& tree);
bool is_contiguous(const TensorDict& tree);

// --- Other dtypes and devices

/// Returns leaves of another dtype, those of whole numbers too; those that have it already are shared.
TensorDict to(const TensorDict& tree, at::ScalarType dtype);

struct ToOptions {
  /// Do not wait for copies out of pinned memory to a device.
  bool non_blocking = false;
  /// Copy leaves that are there already?
  bool copy = false;
};

/// Returns leaves on another device; those that are there already are shared.
TensorDict to(const TensorDict& tree, at::Device device, const ToOptions& options = {});
TensorDict cpu(const TensorDict& tree);
TensorDict cuda(const TensorDict& tree);

/// Returns the device of all leaves; nothing if there are several, or no leaf. Python: `td.device`, there a promise
/// that moves every leaf that is set.
std::optional<at::Device> device(const TensorDict& tree);

/// Returns leaves in page-locked memory, out of which copies to a device can be asynchronous; those that are in it
/// already are shared. It needs an accelerator.
TensorDict pin_memory(const TensorDict& tree);

// --- Gradients that autograd keeps in the leaves. See autograd.h for how to compute them.

/// Sets the flag of the tensors themselves, so every tree that shares them sees it.
/// \throws c10::ValueError listing every leaf whose dtype has no gradients, or, if not `requires_grad`, that was
/// computed
///     from others; no flag is changed.
const TensorDict& requires_grad_(const TensorDict& tree, bool requires_grad = true);

/// Says whether any leaf does.
bool requires_grad(const TensorDict& tree);

/// Returns the tree of the gradients that were accumulated in leaves, with the leaves that have one. It is locked if
/// the tree is. Python gives None instead of an empty tree.
TensorDict grad(const TensorDict& tree);

/// Takes the gradients out of the leaves, or sets them to zero.
const TensorDict& zero_grad(const TensorDict& tree, bool set_to_none = true);

}  // namespace graft
