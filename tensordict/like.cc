#include "tensordict/like.h"

#include <ATen/Functions.h>

#include <vector>

#include "tensordict/internal/batch_dims.h"
#include "tensordict/internal/dtypes.h"
#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/write_leaves.h"

namespace graft {
namespace {

using internal::Tensors;

/// Returns the tree of what `function` makes of each leaf, locked if `tree` is.
template <typename Function>
TensorDict each(const TensorDict& tree, Function function) {
  return tree.with_values(internal::for_each_leaf(function, tree.values()));
}

template <typename Function>
TensorDict in_batch_dims(const TensorDict& tree, const std::vector<int64_t>& batch_size, Function make) {
  const auto make_leaf = [&](const at::Tensor& leaf) {
    return make(leaf, internal::joined(batch_size, internal::own_sizes(leaf, tree.batch_dims())));
  };
  return tree.with_values(internal::for_each_leaf(make_leaf, tree.values()), batch_size).unlocked();
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
  internal::write_leaves(
      "zero_", tree, [](const Tensors& leaves) { at::_foreach_zero_(leaves); },
      [](const at::Tensor& leaf) { leaf.zero_(); });
  return tree;
}

const TensorDict& fill_(const TensorDict& tree, const at::Scalar& value) {
  internal::write_each_leaf("fill_", tree, [&](const at::Tensor& leaf) { leaf.fill_(value); });
  return tree;
}

}  // namespace graft
