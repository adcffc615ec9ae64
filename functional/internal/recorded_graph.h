// What autograd recorded on this thread: which tensors a backward pass would give a gradient.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace graft::internal {

/// A point in time, to tell what this thread records later from what is there.
uint64_t recorded_so_far();

/// Returns the tensors in whose `grad` a backward from `results` would accumulate, as far as operators that this thread
/// recorded at `since` or later lead there.
std::vector<at::Tensor> accumulated_from(const std::vector<at::Tensor>& results, uint64_t since);

}  // namespace graft::internal
