#include "tensordict/compare.h"

#include <ATen/Functions.h>
#include <ATen/ScalarOps.h>

#include <utility>

#include "tensordict/internal/for_all_leaves.h"

namespace graft {
namespace {

using internal::for_each_leaf;
using internal::Tensors;

// The logic of LibTorch has no numbers.
const at::Tensor& as_tensor(const at::Tensor& tensor) { return tensor; }
at::Tensor as_tensor(const at::Scalar& number) { return at::native::wrapped_scalar_tensor(number); }

}  // namespace

#define GRAFT_COMPARISON(name)                                                                                         \
  TensorDict name(const TensorDict& left, const Operand& right) {                                                      \
    return internal::combine(#name, left, right,                                                                       \
                             [](const Tensors& l, const auto& r) {                                                     \
                               return for_each_leaf([](const at::Tensor& a, const auto& b) { return at::name(a, b); }, \
                                                    l, r);                                                             \
                             })                                                                                        \
        .unlocked();                                                                                                   \
  }
GRAFT_COMPARISON(eq)
GRAFT_COMPARISON(ne)
GRAFT_COMPARISON(lt)
GRAFT_COMPARISON(le)
GRAFT_COMPARISON(gt)
GRAFT_COMPARISON(ge)
#undef GRAFT_COMPARISON

#define GRAFT_LOGIC(name)                                                                                       \
  TensorDict name(const TensorDict& left, const Operand& right) {                                               \
    return internal::combine(#name, left, right, [](const Tensors& l, const auto& r) {                          \
      return for_each_leaf([](const at::Tensor& a, const auto& b) { return at::name(a, as_tensor(b)); }, l, r); \
    });                                                                                                         \
  }
GRAFT_LOGIC(logical_and)
GRAFT_LOGIC(logical_or)
GRAFT_LOGIC(logical_xor)
GRAFT_LOGIC(bitwise_and)
GRAFT_LOGIC(bitwise_or)
GRAFT_LOGIC(bitwise_xor)
#undef GRAFT_LOGIC

#define GRAFT_PREDICATE(name)                                                                                     \
  TensorDict name(const TensorDict& tree) {                                                                       \
    return tree.with_values(for_each_leaf([](const at::Tensor& leaf) { return at::name(leaf); }, tree.values())); \
  }
GRAFT_PREDICATE(logical_not)
GRAFT_PREDICATE(bitwise_not)
GRAFT_PREDICATE(isfinite)
GRAFT_PREDICATE(isnan)
GRAFT_PREDICATE(isneginf)
GRAFT_PREDICATE(isposinf)
GRAFT_PREDICATE(isreal)
#undef GRAFT_PREDICATE

}  // namespace graft
