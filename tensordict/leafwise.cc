#include "tensordict/leafwise.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <sstream>
#include <string>
#include <utility>

#include "tensordict/internal/batch_dims.h"
#include "tensordict/internal/dtypes.h"
#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/operand.h"
#include "tensordict/ties.h"

namespace graft {
namespace {

using internal::Tensors;

/// Returns the tree of what `function` makes of each leaf, locked if `tree` is.
template <typename Function>
TensorDict each(const TensorDict& tree, Function function) {
  return tree.with_values(internal::for_each_leaf(function, tree.values()));
}

/// The same with one call for a tensor that has several names.
template <typename Function>
TensorDict each_distinct(const TensorDict& tree, Function function) {
  const std::vector<std::size_t> ties = tie_positions(tree.values());
  Tensors results;
  results.reserve(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    results.push_back(ties[i] == i ? function(tree.values()[i]) : at::Tensor(results[ties[i]]));
  }
  return tree.with_values(std::move(results));
}

template <typename Function>
TensorDict in_batch_dims(const TensorDict& tree, const std::vector<int64_t>& batch_size, Function make) {
  const auto make_leaf = [&](const at::Tensor& leaf) {
    return make(leaf, internal::joined(batch_size, internal::own_sizes(leaf, tree.batch_dims())));
  };
  return tree.with_values(internal::for_each_leaf(make_leaf, tree.values()), batch_size).unlocked();
}

/// Says whether autograd has put a gradient into the tensor.
bool has_gradient(const at::Tensor& leaf) {
  const bool can_have = leaf.is_leaf() || leaf.retains_grad();  // LibTorch warns if others are asked
  return can_have && leaf.grad().defined();
}

/// Checks that the flag of every leaf may be taken away.
void check_leaves_of_autograd(const TensorDict& tree) {
  std::ostringstream problems;
  for (const auto& [path, leaf] : tree.leaves()) {
    if (!leaf.is_leaf()) problems << "\n  \"" << path << '"';
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "requires_grad_: these leaves were computed from others; detach them instead:", text);
}

}  // namespace

TensorDict zeros_like(const TensorDict& tree) {
  return each(tree, [](const at::Tensor& leaf) { return at::zeros_like(leaf); });
}

TensorDict ones_like(const TensorDict& tree) {
  return each(tree, [](const at::Tensor& leaf) { return at::ones_like(leaf); });
}

TensorDict full_like(const TensorDict& tree, const at::Scalar& fill) {
  return each(tree, [&](const at::Tensor& leaf) { return at::full_like(leaf, fill); });
}

TensorDict empty_like(const TensorDict& tree) {
  return each(tree, [](const at::Tensor& leaf) { return at::empty_like(leaf); });
}

TensorDict rand_like(const TensorDict& tree) {
  internal::check_floating_or_complex("rand_like", tree);
  return each(tree, [](const at::Tensor& leaf) { return at::rand_like(leaf); });
}

TensorDict randn_like(const TensorDict& tree) {
  internal::check_floating_or_complex("randn_like", tree);
  return each(tree, [](const at::Tensor& leaf) { return at::randn_like(leaf); });
}

TensorDict new_zeros(const TensorDict& tree, const std::vector<int64_t>& batch_size) {
  return in_batch_dims(tree, batch_size, [](const at::Tensor& leaf, at::IntArrayRef s) { return leaf.new_zeros(s); });
}

TensorDict new_ones(const TensorDict& tree, const std::vector<int64_t>& batch_size) {
  return in_batch_dims(tree, batch_size, [](const at::Tensor& leaf, at::IntArrayRef s) { return leaf.new_ones(s); });
}

TensorDict new_full(const TensorDict& tree, const std::vector<int64_t>& batch_size, const at::Scalar& fill) {
  return in_batch_dims(tree, batch_size,
                       [&](const at::Tensor& leaf, at::IntArrayRef s) { return leaf.new_full(s, fill); });
}

TensorDict new_empty(const TensorDict& tree, const std::vector<int64_t>& batch_size) {
  return in_batch_dims(tree, batch_size, [](const at::Tensor& leaf, at::IntArrayRef s) { return leaf.new_empty(s); });
}

const TensorDict& zero_(const TensorDict& tree) {
  internal::check_in_place("zero_", tree, nullptr, internal::Result::kOfItsKind);
  internal::for_all_leaves_([](const Tensors& leaves) { at::_foreach_zero_(leaves); },
                            [](const at::Tensor& leaf) { leaf.zero_(); }, tree.values());
  return tree;
}

const TensorDict& fill_(const TensorDict& tree, const at::Scalar& value) {
  internal::check_in_place("fill_", tree, nullptr, internal::Result::kOfItsKind);
  for (const at::Tensor& leaf : tree.values()) leaf.fill_(value);
  return tree;
}

TensorDict clone(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.clone(); }).unlocked();
}

TensorDict detach(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.detach(); });
}

TensorDict data(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.data(); });
}

TensorDict contiguous(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.contiguous(); }).unlocked();
}

bool is_contiguous(const TensorDict& tree) {
  return std::all_of(tree.values().begin(), tree.values().end(),
                     [](const at::Tensor& leaf) { return leaf.is_contiguous(); });
}

TensorDict to(const TensorDict& tree, at::ScalarType dtype) {
  return each_distinct(tree, [&](const at::Tensor& leaf) { return leaf.to(dtype); });
}

TensorDict to(const TensorDict& tree, at::Device device, const ToOptions& options) {
  return each_distinct(tree, [&](const at::Tensor& leaf) {
    return leaf.to(leaf.options().device(device), options.non_blocking, options.copy);
  });
}

TensorDict cpu(const TensorDict& tree) { return to(tree, at::Device(at::kCPU)); }
TensorDict cuda(const TensorDict& tree) { return to(tree, at::Device(at::kCUDA)); }

std::optional<at::Device> device(const TensorDict& tree) {
  if (tree.empty()) return std::nullopt;
  const at::Device first = tree.values().front().device();
  const auto is_there = [&](const at::Tensor& leaf) { return leaf.device() == first; };
  const Tensors& leaves = tree.values();
  return std::all_of(leaves.begin(), leaves.end(), is_there) ? std::optional(first) : std::nullopt;
}

TensorDict pin_memory(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.pin_memory(); });
}

const TensorDict& requires_grad_(const TensorDict& tree, bool requires_grad) {
  if (requires_grad) {
    internal::check_floating_or_complex("requires_grad_", tree);
  } else {
    check_leaves_of_autograd(tree);
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
