// Which leaf stands for which tensor of a module, in a call that exchanges them without writing to the module.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "functional/internal/swap_plan.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

/// Returns each tensor of the module that a leaf is given for, once, with that leaf. Names of one tensor need not all
/// be given: they all mean the same tensor.
/// \throws c10::IndexError listing every name that the module does not have.
/// \throws c10::ValueError listing every leaf whose shape, dtype or device is not that of a tensor which it can stand
///     for, or every two names of one tensor that are given different leaves.
std::vector<std::pair<at::Tensor, at::Tensor>> concurrent_leaves(SwapPlan& plan,
                                                                 absl::Span<const TensorDict* const> trees);

}  // namespace graft::internal
