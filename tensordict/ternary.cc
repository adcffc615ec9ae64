#include "tensordict/ternary.h"

#include <ATen/Functions.h>

#include <utility>

#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/write_leaves.h"

namespace graft {
namespace {

using internal::Aligned;
using internal::for_all_leaves;
using internal::write_leaves;

constexpr auto kLerp = [](const auto& start, const auto& end, const auto& weight) {
  return at::_foreach_lerp(start, end, weight);
};
constexpr auto kLerpOne = [](const at::Tensor& start, const at::Tensor& end, const auto& weight) {
  return start.lerp(end, weight);
};
constexpr auto kLerpInPlace = [](const auto& start, const auto& end, const auto& weight) {
  at::_foreach_lerp_(start, end, weight);
};
constexpr auto kLerpOneInPlace = [](const at::Tensor& start, const at::Tensor& end, const auto& weight) {
  start.lerp_(end, weight);
};

}  // namespace

TensorDict lerp(const TensorDict& start, const Operand& end, const Operand& weight) {
  if (const at::Scalar* number = weight.number()) {
    Aligned aligned = internal::align("lerp", start, {&end});
    return start.with_values(for_all_leaves(kLerp, kLerpOne, aligned.sides[0], aligned.sides[1], *number),
                             std::move(aligned.batch_size));
  }
  Aligned aligned = internal::align("lerp", start, {&end, &weight});
  return start.with_values(for_all_leaves(kLerp, kLerpOne, aligned.sides[0], aligned.sides[1], aligned.sides[2]),
                           std::move(aligned.batch_size));
}

const TensorDict& lerp_(const TensorDict& start, const Operand& end, const Operand& weight) {
  if (const at::Scalar* number = weight.number()) {
    const Aligned aligned = internal::align_in_place("lerp_", start, {&end});
    write_leaves("lerp_", start, kLerpInPlace, kLerpOneInPlace, aligned.sides[1], *number);
  } else {
    const Aligned aligned = internal::align_in_place("lerp_", start, {&end, &weight});
    write_leaves("lerp_", start, kLerpInPlace, kLerpOneInPlace, aligned.sides[1], aligned.sides[2]);
  }
  return start;
}

// A sum with a product or a quotient, and the same in place.
#define GRAFT_ADD_COMBINED(name)                                                                                       \
  TensorDict name(const TensorDict& tree, const Operand& left, const Operand& right, const at::Scalar& value) {        \
    Aligned aligned = internal::align(#name, tree, {&left, &right});                                                   \
    internal::check_factor(#name, tree, aligned.sides, value);                                                         \
    return tree.with_values(                                                                                           \
        for_all_leaves(                                                                                                \
            [&](const auto& a, const auto& b, const auto& c) { return at::_foreach_##name(a, b, c, value); },          \
            [&](const auto& a, const auto& b, const auto& c) { return a.name(b, c, value); }, aligned.sides[0],        \
            aligned.sides[1], aligned.sides[2]),                                                                       \
        std::move(aligned.batch_size));                                                                                \
  }                                                                                                                    \
  const TensorDict& name##_(const TensorDict& tree, const Operand& left, const Operand& right,                         \
                            const at::Scalar& value) {                                                                 \
    const Aligned aligned = internal::align_in_place(#name "_", tree, {&left, &right});                                \
    internal::check_factor(#name "_", tree, aligned.sides, value);                                                     \
    write_leaves(                                                                                                      \
        #name "_", tree, [&](const auto& a, const auto& b, const auto& c) { at::_foreach_##name##_(a, b, c, value); }, \
        [&](const auto& a, const auto& b, const auto& c) { a.name##_(b, c, value); }, aligned.sides[1],                \
        aligned.sides[2]);                                                                                             \
    return tree;                                                                                                       \
  }
GRAFT_ADD_COMBINED(addcmul)
GRAFT_ADD_COMBINED(addcdiv)
#undef GRAFT_ADD_COMBINED

}  // namespace graft
