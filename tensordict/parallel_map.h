// map and zip_map on several threads, for large leaves and functions of many operators.
//
//   TensorDict sorted = parallel_map(td, [](const at::Tensor& leaf) { return std::get<0>(leaf.sort()); });
//
// LibTorch's own threads (at::get_num_threads) take one leaf after the other, and what the function calls then runs on
// one thread. Small leaves, and those inside vmap or grad, are mapped on the calling thread: a thread would cost more.
// Python: TensorDict.apply with num_threads.
#pragma once

#include "tensordict/map.h"
#include "tensordict/tensordict.h"

namespace graft {

/// Applies `function` to every leaf, as map does. Several threads may run it at once; each has the modes of the calling
/// thread, as grad mode. What it throws passes through, after all threads have ended.
/// \throws as map.
TensorDict parallel_map(const TensorDict& tree, LeafFunction function);

/// Applies `function` to the leaves of both trees that have one path, as zip_map does.
/// \throws as zip_map.
TensorDict parallel_zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function);

}  // namespace graft
