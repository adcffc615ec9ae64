#include "tensordict/binary.h"

#include <ATen/Functions.h>

#include <utility>
#include <vector>

#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/write_leaves.h"

namespace graft {
namespace {

using internal::for_all_leaves;
using internal::Tensors;
using internal::write_leaves;

// LibTorch names these two for a tensor and a number differently.
at::Tensor larger(const at::Tensor& leaf, const at::Tensor& other) { return at::maximum(leaf, other); }
at::Tensor larger(const at::Tensor& leaf, const at::Scalar& other) { return at::clamp_min(leaf, other); }
at::Tensor smaller(const at::Tensor& leaf, const at::Tensor& other) { return at::minimum(leaf, other); }
at::Tensor smaller(const at::Tensor& leaf, const at::Scalar& other) { return at::clamp_max(leaf, other); }

}  // namespace

// A sum with a factor, and the same in place.
#define GRAFT_SCALED_SUM(name)                                                                           \
  TensorDict name(const TensorDict& tree, const Operand& other, const at::Scalar& alpha) {               \
    internal::Aligned aligned = internal::align(#name, tree, {&other});                                  \
    internal::check_factor(#name, tree, aligned.sides, alpha);                                           \
    return tree.with_values(                                                                             \
        for_all_leaves([&](const auto& a, const auto& b) { return at::_foreach_##name(a, b, alpha); },   \
                       [&](const auto& a, const auto& b) { return a.name(b, alpha); }, aligned.sides[0], \
                       aligned.sides[1]),                                                                \
        std::move(aligned.batch_size));                                                                  \
  }                                                                                                      \
  const TensorDict& name##_(const TensorDict& tree, const Operand& other, const at::Scalar& alpha) {     \
    const internal::Aligned aligned = internal::align_in_place(#name "_", tree, {&other});               \
    write_leaves(                                                                                        \
        #name "_", tree, [&](const auto& a, const auto& b) { at::_foreach_##name##_(a, b, alpha); },     \
        [&](const auto& a, const auto& b) { a.name##_(b, alpha); }, aligned.sides[1]);                   \
    return tree;                                                                                         \
  }
GRAFT_SCALED_SUM(add)
GRAFT_SCALED_SUM(sub)
#undef GRAFT_SCALED_SUM

// One function with a fused operation, and the same in place.
#define GRAFT_FUSED_BINARY(name, single, single_)                                                   \
  TensorDict name(const TensorDict& tree, const Operand& other) {                                   \
    return internal::combine(#name, tree, other, [](const Tensors& l, const auto& r) {              \
      return for_all_leaves([](const auto& a, const auto& b) { return at::_foreach_##name(a, b); }, \
                            [](const at::Tensor& a, const auto& b) { return single; }, l, r);       \
    });                                                                                             \
  }                                                                                                 \
  const TensorDict& name##_(const TensorDict& tree, const Operand& other) {                         \
    internal::with_side(#name "_", tree, other, [&](const auto& side) {                             \
      write_leaves(                                                                                 \
          #name "_", tree, [](const auto& a, const auto& b) { at::_foreach_##name##_(a, b); },      \
          [](const at::Tensor& a, const auto& b) { single_; }, side);                               \
    });                                                                                             \
    return tree;                                                                                    \
  }
GRAFT_FUSED_BINARY(pow, a.pow(b), a.pow_(b))
GRAFT_FUSED_BINARY(maximum, larger(a, b), a.copy_(larger(a, b)))
GRAFT_FUSED_BINARY(minimum, smaller(a, b), a.copy_(smaller(a, b)))
GRAFT_FUSED_BINARY(clamp_min, a.clamp_min(b), a.clamp_min_(b))
GRAFT_FUSED_BINARY(clamp_max, a.clamp_max(b), a.clamp_max_(b))
#undef GRAFT_FUSED_BINARY

TensorDict pow(const at::Scalar& base, const TensorDict& exponent) {
  return exponent.with_values(
      for_all_leaves([&](const Tensors& exponents) { return at::_foreach_pow(base, exponents); },
                     [&](const at::Tensor& leaf) { return at::pow(base, leaf); }, exponent.values()));
}

TensorDict clamp(const TensorDict& tree, const Operand& min, const Operand& max) {
  return clamp_max(clamp_min(tree, min), max);
}

const TensorDict& clamp_(const TensorDict& tree, const Operand& min, const Operand& max) {
  internal::with_side("clamp_", tree, min, [&](const auto& lower) {
    internal::with_side("clamp_", tree, max, [&](const auto& upper) {
      write_leaves(
          "clamp_", tree,
          [](const auto& leaves, const auto& l, const auto& u) {
            at::_foreach_clamp_min_(leaves, l);
            at::_foreach_clamp_max_(leaves, u);
          },
          [](const at::Tensor& leaf, const auto& l, const auto& u) { leaf.clamp_min_(l).clamp_max_(u); }, lower, upper);
    });
  });
  return tree;
}

TensorDict remainder(const TensorDict& tree, const Operand& divisor) {
  return internal::combine("remainder", tree, divisor, [](const Tensors& l, const auto& r) {
    return internal::for_each_leaf([](const at::Tensor& a, const auto& b) { return a.remainder(b); }, l, r);
  });
}

const TensorDict& remainder_(const TensorDict& tree, const Operand& divisor) {
  internal::with_side("remainder_", tree, divisor, [&](const auto& side) {
    internal::write_each_leaf(
        "remainder_", tree, [](const at::Tensor& a, const auto& b) { a.remainder_(b); }, side);
  });
  return tree;
}

}  // namespace graft
