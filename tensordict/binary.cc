#include "tensordict/binary.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensordict/internal/for_all_leaves.h"

namespace graft {
namespace {

using internal::for_all_leaves;
using internal::for_all_leaves_;
using internal::Result;
using internal::Tensors;

// LibTorch names these two for a tensor and a number differently.
at::Tensor larger(const at::Tensor& leaf, const at::Tensor& other) { return at::maximum(leaf, other); }
at::Tensor larger(const at::Tensor& leaf, const at::Scalar& other) { return at::clamp_min(leaf, other); }
at::Tensor smaller(const at::Tensor& leaf, const at::Tensor& other) { return at::minimum(leaf, other); }
at::Tensor smaller(const at::Tensor& leaf, const at::Scalar& other) { return at::clamp_max(leaf, other); }

bool takes_alpha(at::ScalarType dtype, const at::Scalar& alpha) {
  if (alpha.isComplex()) return c10::isComplexType(dtype);
  return !alpha.isFloatingPoint() || !c10::isIntegralType(dtype, /*includeBool=*/true);
}

/// LibTorch checks this too, but one leaf at a time, when others may have been changed.
void check_alpha(const char* call, const TensorDict& tree, const std::vector<Tensors>& sides, const at::Scalar& alpha) {
  std::ostringstream problems;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const at::ScalarType dtype = at::result_type(sides[0][i], sides[1][i]);
    if (takes_alpha(dtype, alpha)) continue;
    problems << "\n  \"" << tree.keys()->path(i) << "\": the result has dtype " << dtype;
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves cannot be combined with alpha = ", alpha, ':', text);
}

}  // namespace

// A sum with a factor, and the same in place.
#define GRAFT_SCALED_SUM(name)                                                                                    \
  TensorDict name(const TensorDict& tree, const Operand& other, const at::Scalar& alpha) {                        \
    internal::Aligned aligned = internal::align(#name, tree, {&other});                                           \
    check_alpha(#name, tree, aligned.sides, alpha);                                                               \
    return tree.with_values(                                                                                      \
        for_all_leaves([&](const auto& a, const auto& b) { return at::_foreach_##name(a, b, alpha); },            \
                       [&](const auto& a, const auto& b) { return a.name(b, alpha); }, aligned.sides[0],          \
                       aligned.sides[1]),                                                                         \
        std::move(aligned.batch_size));                                                                           \
  }                                                                                                               \
  const TensorDict& name##_(const TensorDict& tree, const Operand& other, const at::Scalar& alpha) {              \
    const internal::Aligned aligned = internal::align_in_place(#name "_", tree, {&other}, Result::kOfItsKind);    \
    check_alpha(#name "_", tree, aligned.sides, alpha);                                                           \
    for_all_leaves_([&](const auto& a, const auto& b) { at::_foreach_##name##_(a, b, alpha); },                   \
                    [&](const auto& a, const auto& b) { a.name##_(b, alpha); }, tree.values(), aligned.sides[1]); \
    return tree;                                                                                                  \
  }
GRAFT_SCALED_SUM(add)
GRAFT_SCALED_SUM(sub)
#undef GRAFT_SCALED_SUM

// One function with a fused operation, and the same in place.
#define GRAFT_FUSED_BINARY(name, single, single_)                                                        \
  TensorDict name(const TensorDict& tree, const Operand& other) {                                        \
    return internal::combine(#name, tree, other, [](const Tensors& l, const auto& r) {                   \
      return for_all_leaves([](const auto& a, const auto& b) { return at::_foreach_##name(a, b); },      \
                            [](const at::Tensor& a, const auto& b) { return single; }, l, r);            \
    });                                                                                                  \
  }                                                                                                      \
  const TensorDict& name##_(const TensorDict& tree, const Operand& other) {                              \
    internal::combine_(#name "_", tree, other, Result::kOfItsKind, [](const Tensors& l, const auto& r) { \
      for_all_leaves_([](const auto& a, const auto& b) { at::_foreach_##name##_(a, b); },                \
                      [](const at::Tensor& a, const auto& b) { single_; }, l, r);                        \
    });                                                                                                  \
    return tree;                                                                                         \
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
  internal::align_in_place("clamp_", tree, {&min, &max}, Result::kOfItsKind);  // throws before anything is changed
  return clamp_max_(clamp_min_(tree, min), max);
}

TensorDict remainder(const TensorDict& tree, const Operand& divisor) {
  return internal::combine("remainder", tree, divisor, [](const Tensors& l, const auto& r) {
    return internal::for_each_leaf([](const at::Tensor& a, const auto& b) { return a.remainder(b); }, l, r);
  });
}

const TensorDict& remainder_(const TensorDict& tree, const Operand& divisor) {
  internal::combine_("remainder_", tree, divisor, Result::kOfItsKind, [](const Tensors& l, const auto& r) {
    internal::for_each_leaf([](const at::Tensor& a, const auto& b) { return a.remainder_(b); }, l, r);
  });
  return tree;
}

}  // namespace graft
