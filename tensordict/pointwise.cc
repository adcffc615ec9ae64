#include "tensordict/pointwise.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensordict/structure.h"
#include "tensordict/transformed.h"

namespace graft {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Says whether a leaf belongs to a vmap or grad level: those have no rule for the fused operations.
bool any_transformed(const Tensors& values) {
  return std::any_of(values.begin(), values.end(), internal::is_transformed);
}

// The right side of an operation, either a value per leaf or one number: what belongs to leaf `i`.
bool any_transformed(const at::Scalar&) { return false; }
const at::Tensor& operand(const Tensors& values, std::size_t i) { return values[i]; }
const at::Scalar& operand(const at::Scalar& number, std::size_t) { return number; }

/// Applies `Operation` to all leaves at once if that can be, else leaf by leaf.
template <typename Operation, typename Right>
TensorDict apply(const TensorDict& left, const Right& right) {
  const Tensors& values = left.values();
  if (!any_transformed(values) && !any_transformed(right)) {
    return left.with_values(Operation::fused(values, right));
  }
  Tensors results;
  results.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) results.push_back(Operation::single(values[i], operand(right, i)));
  return left.with_values(std::move(results));
}

/// The same, writing to the leaves of `left`.
template <typename Operation, typename Right>
TensorDict& apply_(TensorDict& left, const Right& right) {
  const Tensors& values = left.values();
  if (!any_transformed(values) && !any_transformed(right)) {
    Operation::fused_(values, right);
    return left;
  }
  for (std::size_t i = 0; i < values.size(); ++i) Operation::single_(values[i], operand(right, i));
  return left;
}

/// Returns the leaves of `right` in the order of `left`, checked to be writable into those.
Tensors operands_in_place(const char* call, const TensorDict& left, const TensorDict& right) {
  Tensors values = aligned_values(call, left, right);
  std::ostringstream problems;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& path = left.keys()->path(i);
    const at::Tensor& target = left.values()[i];
    if (!at::is_expandable_to(values[i].sizes(), target.sizes())) {
      problems << "\n  \"" << path << "\": shape " << values[i].sizes() << ", expected one that broadcasts to "
               << target.sizes();
    }
    if (!c10::canCast(values[i].scalar_type(), target.scalar_type())) {
      problems << "\n  \"" << path << "\": dtype " << values[i].dtype() << ", expected one that converts to "
               << target.dtype();
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call,
                    ": these leaves of the second tree do not fit the first, which is unchanged:", text);
  return values;
}

// One operation on two operands: a type that holds it for all leaves and for one, and the operators that use it.
#define GRAFT_ARITHMETIC(Operation, symbol, name)                                                                      \
  struct Operation {                                                                                                   \
    template <typename Right>                                                                                          \
    static Tensors fused(const Tensors& left, const Right& right) {                                                    \
      return at::_foreach_##name(left, right);                                                                         \
    }                                                                                                                  \
    template <typename Right>                                                                                          \
    static void fused_(const Tensors& left, const Right& right) {                                                      \
      at::_foreach_##name##_(left, right);                                                                             \
    }                                                                                                                  \
    template <typename Right>                                                                                          \
    static at::Tensor single(const at::Tensor& left, const Right& right) {                                             \
      return left.name(right);                                                                                         \
    }                                                                                                                  \
    template <typename Right>                                                                                          \
    static void single_(const at::Tensor& left, const Right& right) {                                                  \
      left.name##_(right);                                                                                             \
    }                                                                                                                  \
  };                                                                                                                   \
  }                                                                                                                    \
  TensorDict operator symbol(const TensorDict& left, const TensorDict& right) {                                        \
    return apply<Operation>(left, aligned_values("operator" #symbol, left, right));                                    \
  }                                                                                                                    \
  TensorDict operator symbol(const TensorDict& left, const at::Scalar& right) {                                        \
    return apply<Operation>(left, right);                                                                              \
  }                                                                                                                    \
  TensorDict& operator symbol##=(TensorDict& left, const TensorDict& right) {                                          \
    return apply_<Operation>(left, operands_in_place("operator" #symbol "=", left, right));                            \
  }                                                                                                                    \
  TensorDict& operator symbol##=(TensorDict& left, const at::Scalar& right) { return apply_<Operation>(left, right); } \
  namespace {

GRAFT_ARITHMETIC(Add, +, add)
GRAFT_ARITHMETIC(Subtract, -, sub)
GRAFT_ARITHMETIC(Multiply, *, mul)
GRAFT_ARITHMETIC(Divide, /, div)
#undef GRAFT_ARITHMETIC

/// Returns `1 / tree`, as LibTorch computes a number divided by a tensor.
TensorDict reciprocal(const TensorDict& tree) {
  if (any_transformed(tree.values())) return tree.map([](const at::Tensor& value) { return value.reciprocal(); });
  return tree.with_values(at::_foreach_reciprocal(tree.values()));
}

}  // namespace

TensorDict operator-(const TensorDict& tree) {
  if (any_transformed(tree.values())) return tree.map([](const at::Tensor& value) { return value.neg(); });
  return tree.with_values(at::_foreach_neg(tree.values()));
}

TensorDict operator+(const at::Scalar& left, const TensorDict& right) { return right + left; }
TensorDict operator-(const at::Scalar& left, const TensorDict& right) { return -right + left; }
TensorDict operator*(const at::Scalar& left, const TensorDict& right) { return right * left; }
TensorDict operator/(const at::Scalar& left, const TensorDict& right) { return reciprocal(right) * left; }

TensorDict lerp(const TensorDict& start, const TensorDict& end, const at::Scalar& weight) {
  const Tensors ends = aligned_values("lerp", start, end);
  if (!any_transformed(start.values()) && !any_transformed(ends)) {
    return start.with_values(at::_foreach_lerp(start.values(), ends, weight));
  }
  Tensors results;
  results.reserve(ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i) results.push_back(start.values()[i].lerp(ends[i], weight));
  return start.with_values(std::move(results));
}

}  // namespace graft
