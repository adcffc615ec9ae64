#include "tensordict/match_keys.h"

#include <ATen/core/Formatting.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <string>

#include "tensordict/like.h"
#include "tensordict/partition.h"
#include "tensordict/update.h"

namespace graft {
namespace {

/// Returns the leaves of `tree` that `other` has too, and those that it has not.
std::pair<TensorDict, TensorDict> divide(const TensorDict& tree, const TensorDict& other) {
  return partition(tree, [&](const std::string& path, const at::Tensor&) { return other.find(path) != nullptr; });
}

/// Checks that no leaf would be filled with another number.
void check_fill(const TensorDict& missing, const at::Scalar& value) {
  const bool is_whole = !value.isFloatingPoint() || value.toDouble() == std::trunc(value.toDouble());
  std::string problems;
  for (const auto& [path, leaf] : missing.leaves()) {
    const bool is_of_whole_numbers = c10::isIntegralType(leaf.scalar_type(), /*includeBool=*/true);
    const bool is_finite = !value.isFloatingPoint() || std::isfinite(value.toDouble());
    const bool fits = leaf.is_complex() || (!value.isComplex() && (!is_of_whole_numbers || (is_whole && is_finite)));
    if (!fits) problems += c10::str("\n  \"", path, "\": dtype ", leaf.dtype());
  }
  TORCH_CHECK_VALUE(problems.empty(), "fill_missing: these leaves cannot be filled with ", value, ':', problems);
}

TensorDict filled(const TensorDict& tree, const TensorDict& other, const at::Scalar& value) {
  const TensorDict missing = divide(other, tree).second;
  check_fill(missing, value);
  TensorDict result = tree.unlocked();
  update(result, new_full(missing, tree.batch_size(), value));
  return result;
}

}  // namespace

std::pair<TensorDict, TensorDict> keep_common(const TensorDict& left, const TensorDict& right) {
  return {divide(left, right).first, divide(right, left).first};
}

std::pair<TensorDict, TensorDict> fill_missing(const TensorDict& left, const TensorDict& right,
                                               const at::Scalar& value) {
  return {filled(left, right, value), filled(right, left, value)};
}

}  // namespace graft
