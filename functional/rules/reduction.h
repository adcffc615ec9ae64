// What a loss of many elements becomes at its end.
#pragma once

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>

namespace graft::internal {

inline at::Tensor reduce(const at::Tensor& losses, int64_t reduction) {
  switch (reduction) {
    case at::Reduction::Mean:
      return losses.mean();
    case at::Reduction::Sum:
      return losses.sum();
    default:
      return losses;
  }
}

}  // namespace graft::internal
