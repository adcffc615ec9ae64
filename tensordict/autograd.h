// Autograd between trees: the gradients of what was computed from the leaves of one, as a tree; and backward.
//
//   TensorDict slopes = gradients(loss, params);
//   TensorDict pulled = gradients(outputs, params, {.grad_outputs = &cotangents, .retain_graph = true});
//   backward(losses);
//
// A leaf under two names is one tensor: both names get its whole gradient. Functions that differentiate functions,
// rather than graphs that were recorded: functional/grad.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "tensordict/tensordict.h"

namespace graft {

struct GradientsOptions {
  /// What each output is multiplied by before all are added up, of its shape; not needed for outputs that are all
  /// single real numbers. Not owned. There may be leaves of other names.
  const TensorDict* grad_outputs = nullptr;
  /// Keep the graph for another call? If it is not said, it stays if `create_graph`.
  std::optional<bool> retain_graph = std::nullopt;
  /// Record the computation of the gradients, so that they can be differentiated?
  bool create_graph = false;
  /// Zeros for inputs that the outputs do not depend on, instead of an error?
  bool materialize_grads = false;
};

/// Returns the gradients of the sum of all outputs, in the shape of `inputs`: its keys, order and batch sizes; not
/// locked. Outputs that do not require grad count as constants. Python: torch.autograd.grad of TensorDicts, which
/// leaves unused inputs out.
/// \throws c10::ValueError listing every input that does not require grad, every output that needs its `grad_outputs`
///     and has none of its shape, and afterwards every input that the outputs do not depend on.
TensorDict gradients(const TensorDict& outputs, const TensorDict& inputs, const GradientsOptions& options = {});

/// The same for one number, for which no grad_outputs are taken.
TensorDict gradients(const at::Tensor& output, const TensorDict& inputs, const GradientsOptions& options = {});

struct BackwardOptions {
  /// As in GradientsOptions.
  const TensorDict* grad_outputs = nullptr;
  std::optional<bool> retain_graph = std::nullopt;
  bool create_graph = false;
  /// The leaves that gradients are added to; if none are named, all that the outputs depend on. Not owned.
  const TensorDict* inputs = nullptr;
};

/// Adds the gradients of the sum of all outputs to the `grad` of the tensors that they were computed from. Outputs that
/// do not require grad count as constants. Python: TensorDict.backward.
/// \throws c10::ValueError if no output requires grad, or listing every output that needs its `grad_outputs` and has
///     none of its shape, and every named input that does not require grad.
void backward(const TensorDict& outputs, const BackwardOptions& options = {});

// --- What autograd keeps in the leaves

/// Sets the flag of the tensors themselves, so every tree that shares them sees it.
/// \throws c10::ValueError listing every leaf whose dtype has no gradients or that was made in inference mode, or, if not
///     `requires_grad`, that was computed from others; no flag is changed.
const TensorDict& requires_grad_(const TensorDict& tree, bool requires_grad = true);

/// Says whether any leaf does.
bool requires_grad(const TensorDict& tree);

/// Returns the tree of the gradients that were accumulated in leaves, with the leaves that have one. It is locked if
/// the tree is. Python gives None instead of an empty tree.
TensorDict grad(const TensorDict& tree);

/// Takes the gradients out of the leaves, or sets them to zero.
const TensorDict& zero_grad(const TensorDict& tree, bool set_to_none = true);

}  // namespace graft
