// The same leaves again: copies, aliases, and leaves of another dtype, device or layout.
//
//   TensorDict snapshot = clone(params);
//   TensorDict on_device = to(batch, at::Device(at::kCUDA), {.non_blocking = true});
//
// Each function means what at::Tensor's function of that name means; keys and batch sizes stay. A tensor that has two
// names is still one tensor under both in the result; Python makes two. Results are locked if the tree is, except for
// those of clone and contiguous.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>

#include "tensordict/tensordict.h"

namespace graft {

/// Returns copies of the leaves; gradients flow through the copy.
TensorDict clone(const TensorDict& tree);

/// Returns leaves that share storage with those of `tree` and have no gradient history.
TensorDict detach(const TensorDict& tree);

/// The same, but autograd does not see what is written to the leaves: it may change values that a backward still needs.
/// Inside vmap and grad, LibTorch has no such thing. \throws c10::Error there.
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

}  // namespace graft
