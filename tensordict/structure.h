// How two trees compare: their keys, the kind of their leaves, their values.
//
// Trees made from one another share their table of keys, and are then compared leaf by leaf by position. Other trees
// are aligned by path, so the order of the leaves is no difference.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

/// What counts as a mismatch beside the keys.
struct MismatchOptions {
  bool shapes = true;
  bool dtypes = true;
  bool devices = true;
  bool requires_grad = false;
  /// A dim in which shapes may differ, counted from the front.
  std::optional<int64_t> free_dim = std::nullopt;
};

/// Lists every difference of `got` from `expected`: keys that are missing or unexpected, and each leaf of another
/// shape, dtype, device or requires_grad.
/// \returns one line a leaf, each starting with a line feed as messages show it; empty if there is no difference.
std::string describe_mismatch(const TensorDict& got, const TensorDict& expected, const MismatchOptions& options = {});

/// Checks that both trees have the same paths, in whatever order.
/// \param call the name of the function that asks, for the message.
/// \throws c10::ValueError listing every key that only one of them has.
void check_same_keys(std::string_view call, const TensorDict& left, const TensorDict& right);

/// Returns the leaves of `tree` in the order that `reference` has them.
/// \throws c10::ValueError as check_same_keys.
std::vector<at::Tensor> aligned_values(std::string_view call, const TensorDict& reference, const TensorDict& tree);

/// Says whether both trees have the same paths and batch sizes, and leaves of equal dtype, device, shape and values.
/// As for tensors, a NaN is equal to nothing.
bool equal(const TensorDict& left, const TensorDict& right);

/// Says the same for values that may differ by `atol + rtol * |right|`.
bool allclose(const TensorDict& left, const TensorDict& right, double rtol = 1e-5, double atol = 1e-8);

}  // namespace graft
