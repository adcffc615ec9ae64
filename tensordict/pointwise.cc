#include "tensordict/pointwise.h"

#include <ATen/Functions.h>

#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/write_leaves.h"
#include "tensordict/unary.h"

namespace graft {

using internal::for_all_leaves;
using internal::Tensors;
using internal::write_leaves;

// One operator: with an operand on the right, with a tensor on the left, and in place.
#define GRAFT_ARITHMETIC(symbol, name)                                                                              \
  TensorDict operator symbol(const TensorDict& left, const Operand& right) {                                        \
    return internal::combine("operator" #symbol, left, right, [](const Tensors& l, const auto& r) {                 \
      return for_all_leaves([](const auto& a, const auto& b) { return at::_foreach_##name(a, b); },                 \
                            [](const auto& a, const auto& b) { return a.name(b); }, l, r);                          \
    });                                                                                                             \
  }                                                                                                                 \
  TensorDict operator symbol(const at::Tensor& left, const TensorDict& right) {                                     \
    const Operand tensor(left);                                                                                     \
    internal::Aligned aligned = internal::align("operator" #symbol, right, {&tensor});                              \
    return right.with_values(                                                                                       \
        for_all_leaves([](const Tensors& a, const Tensors& b) { return at::_foreach_##name(a, b); },                \
                       [](const auto& a, const auto& b) { return a.name(b); }, aligned.sides[1], aligned.sides[0]), \
        std::move(aligned.batch_size));                                                                             \
  }                                                                                                                 \
  TensorDict& operator symbol##=(TensorDict& left, const Operand& right) {                                          \
    internal::with_side("operator" #symbol "=", left, right, [&](const auto& side) {                                \
      write_leaves(                                                                                                 \
          "operator" #symbol "=", left, [](const auto& a, const auto& b) { at::_foreach_##name##_(a, b); },         \
          [](const auto& a, const auto& b) { a.name##_(b); }, side);                                                \
    });                                                                                                             \
    return left;                                                                                                    \
  }

GRAFT_ARITHMETIC(+, add)
GRAFT_ARITHMETIC(-, sub)
GRAFT_ARITHMETIC(*, mul)
GRAFT_ARITHMETIC(/, div)
#undef GRAFT_ARITHMETIC

TensorDict operator-(const TensorDict& tree) { return neg(tree); }

// A number on the left, as LibTorch computes it with a tensor on the right.
TensorDict operator+(const at::Scalar& left, const TensorDict& right) { return right + left; }
TensorDict operator-(const at::Scalar& left, const TensorDict& right) { return -right + left; }
TensorDict operator*(const at::Scalar& left, const TensorDict& right) { return right * left; }
TensorDict operator/(const at::Scalar& left, const TensorDict& right) { return reciprocal(right) * left; }

}  // namespace graft
