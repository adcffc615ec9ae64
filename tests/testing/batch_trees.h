// Trees of one batch size in all shapes that trees come in, and what a function on batch dims should do with them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft::testing {

/// Returns trees of `batch_size`, each with a word that says what it is about: leaves at all depths and of several
/// dtypes, a part with batch dims of its own, leaves without elements, no leaves. No two elements of a leaf are equal.
std::vector<std::pair<std::string, TensorDict>> trees_of_batch(const std::vector<int64_t>& batch_size);

/// Takes and returns a tensor of batch dims alone.
using BatchFunction = std::function<at::Tensor(const at::Tensor&)>;

/// Checks that `got` is what becomes of `tree` if `function` is applied to what the leaves hold at one place beyond the
/// batch dims, place by place.
void expect_elementwise(const TensorDict& got, const TensorDict& tree, const BatchFunction& function);

}  // namespace graft::testing
