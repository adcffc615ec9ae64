// Ties: leaves of several names that are one tensor, as a decoder's weight that is its encoder's.
//
//   TensorDict td({{"encoder", w}, {"bias", b}, {"decoder", w}});
//   tie_positions(td.values());   // 0, 1, 0
//   distinct(td.values());        // w, b
//
// Tensors are one if they are one object (at::Tensor::is_same); views of one storage are not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace graft {

/// Returns for each tensor the position of the first one that is the same.
std::vector<std::size_t> tie_positions(const std::vector<at::Tensor>& tensors);

/// Returns each tensor once, in order: what an optimiser takes.
std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors);

}  // namespace graft
