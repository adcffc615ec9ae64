// One value out of all leaves, taken in order.
//
//   int64_t longest = fold(td, int64_t{0}, [](int64_t length, const std::string& path, const at::Tensor&) {
//     return std::max<int64_t>(length, path.size());
//   });
//
// For what LibTorch's operators add up, as sums and norms, global_reduce.h is faster. JAX: jax.tree.reduce.
#pragma once

#include <utility>

#include "tensordict/tensordict.h"

namespace graft {

/// Returns `function(... function(function(start, path, leaf), path, leaf) ..., path, leaf)`, or `start` of a tree
/// without leaves.
template <typename Value, typename Function>
Value fold(const TensorDict& tree, Value start, Function function) {
  for (const auto& [path, leaf] : tree.leaves()) start = function(std::move(start), path, leaf);
  return start;
}

}  // namespace graft
