#include "tensordict/autograd.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstddef>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensordict/internal/dtypes.h"

namespace graft {
namespace {

using Tensors = std::vector<at::Tensor>;

/// The outputs that have a gradient, each with what it is multiplied by: undefined for single numbers.
struct Roots {
  Tensors outputs;
  Tensors factors;
};

void describe_factor(const std::string& path, const at::Tensor& output, const at::Tensor* factor,
                     std::ostream& problems) {
  if (!factor && output.is_complex()) {
    problems << "\n  output \"" << path << "\": complex, expected an entry in grad_outputs";
  } else if (!factor && output.numel() != 1) {
    problems << "\n  output \"" << path << "\": shape " << output.sizes()
             << ", expected a single number or an entry in grad_outputs";
  } else if (factor && factor->sizes() != output.sizes()) {
    problems << "\n  grad_outputs \"" << path << "\": shape " << factor->sizes() << ", expected " << output.sizes();
  }
}

Roots roots_of(const TensorDict& outputs, const TensorDict* grad_outputs, std::ostream& problems) {
  Roots roots;
  for (const auto& [path, output] : outputs.leaves()) {
    if (!output.requires_grad()) continue;
    const at::Tensor* factor = grad_outputs ? grad_outputs->find(path) : nullptr;
    describe_factor(path, output, factor, problems);
    roots.outputs.push_back(output);
    roots.factors.push_back(factor ? *factor : at::Tensor());
  }
  return roots;
}

void describe_inputs(const TensorDict& inputs, std::ostream& problems) {
  for (const auto& [path, input] : inputs.leaves()) {
    if (!input.requires_grad()) problems << "\n  input \"" << path << "\": does not require grad";
  }
}

void throw_if_any(const char* call, const std::ostringstream& problems) {
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves do not fit:", text);
}

/// Replaces the gradients that are undefined, or throws and lists their inputs.
void replace_undefined(const TensorDict& inputs, bool by_zeros, Tensors& gradients) {
  std::ostringstream unused;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].defined()) continue;
    if (by_zeros) {
      gradients[i] = at::zeros_like(inputs.values()[i]);
    } else {
      unused << "\n  \"" << inputs.keys()->path(i) << '"';
    }
  }
  const std::string text = unused.str();
  TORCH_CHECK_VALUE(text.empty(),
                    "gradients: the outputs do not depend on these inputs (materialize_grads gives zeros):", text);
}

/// Says whether autograd has put a gradient into the tensor.
bool has_gradient(const at::Tensor& leaf) {
  const bool can_have = leaf.is_leaf() || leaf.retains_grad();  // LibTorch warns if others are asked
  return can_have && leaf.grad().defined();
}

/// Checks that no leaf is one that `is_refused`, before the flag of any is set.
void check_flags(const TensorDict& tree, bool (*is_refused)(const at::Tensor&), const char* why) {
  std::ostringstream problems;
  for (const auto& [path, leaf] : tree.leaves()) {
    if (is_refused(leaf)) problems << "\n  \"" << path << '"';
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "requires_grad_: these leaves were ", why, ':', text);
}

bool is_of_inference(const at::Tensor& leaf) { return leaf.is_inference() && !c10::InferenceMode::is_enabled(); }
bool is_computed(const at::Tensor& leaf) { return !leaf.is_leaf(); }

}  // namespace

TensorDict gradients(const TensorDict& outputs, const TensorDict& inputs, const GradientsOptions& options) {
  std::ostringstream problems;
  const Roots roots = roots_of(outputs, options.grad_outputs, problems);
  describe_inputs(inputs, problems);
  throw_if_any("gradients", problems);
  Tensors result(inputs.size());
  if (!inputs.empty() && !roots.outputs.empty()) {
    result = torch::autograd::grad(roots.outputs, inputs.values(), roots.factors, options.retain_graph,
                                   options.create_graph, /*allow_unused=*/true);
  }
  replace_undefined(inputs, options.materialize_grads, result);
  return inputs.with_values(std::move(result)).unlocked();
}

TensorDict gradients(const at::Tensor& output, const TensorDict& inputs, const GradientsOptions& options) {
  TORCH_CHECK_VALUE(options.grad_outputs == nullptr, "gradients: grad_outputs are for a tree of outputs");
  return gradients(TensorDict({{"output", output}}), inputs, options);
}

void backward(const TensorDict& outputs, const BackwardOptions& options) {
  std::ostringstream problems;
  const Roots roots = roots_of(outputs, options.grad_outputs, problems);
  if (options.inputs) describe_inputs(*options.inputs, problems);
  throw_if_any("backward", problems);
  TORCH_CHECK_VALUE(!roots.outputs.empty(), "backward: no leaf of the outputs requires grad");
  if (options.inputs && options.inputs->empty()) return;
  torch::autograd::backward(roots.outputs, roots.factors, options.retain_graph, options.create_graph,
                            options.inputs ? options.inputs->values() : Tensors());
}

const TensorDict& requires_grad_(const TensorDict& tree, bool requires_grad) {
  if (requires_grad) {
    internal::check_floating_or_complex("requires_grad_", tree);
    check_flags(tree, is_of_inference, "made in inference mode; clone them");
  } else {
    check_flags(tree, is_computed, "computed from others; detach them instead");
  }
  for (const at::Tensor& leaf : tree.values()) leaf.requires_grad_(requires_grad);
  return tree;
}

bool requires_grad(const TensorDict& tree) {
  return std::any_of(tree.values().begin(), tree.values().end(),
                     [](const at::Tensor& leaf) { return leaf.requires_grad(); });
}

TensorDict grad(const TensorDict& tree) {
  std::vector<std::size_t> positions;
  Tensors gradients;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    if (!has_gradient(tree.values()[i])) continue;
    positions.push_back(i);
    gradients.push_back(tree.values()[i].grad());
  }
  TensorDict result = tree.subset(positions).with_values(std::move(gradients));
  if (tree.is_locked()) result.lock_();
  return result;
}

const TensorDict& zero_grad(const TensorDict& tree, bool set_to_none) {
  for (const at::Tensor& leaf : tree.values()) {
    if (!has_gradient(leaf)) continue;
    if (set_to_none) {
      leaf.mutable_grad().reset();
    } else {
      const at::NoGradGuard no_grad;
      leaf.mutable_grad().zero_();
    }
  }
  return tree;
}

}  // namespace graft
