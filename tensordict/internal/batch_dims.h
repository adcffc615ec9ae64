// What the functions on the batch dims of a tree share: dims that are checked, and leaves that get other batch dims.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensordict/internal/sizes.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

/// Returns `dim` counted from the front, where there are `places` for it. \throws c10::IndexError naming `call`.
int64_t wrap_dim(std::string_view call, int64_t dim, int64_t places);

/// The same for several dims of `tree`. \throws c10::ValueError also if one is given twice.
std::vector<int64_t> wrap_dims(std::string_view call, at::IntArrayRef dims, const TensorDict& tree);

/// Returns the dims that a leaf has beyond `batch_dims`.
inline at::IntArrayRef own_sizes(const at::Tensor& leaf, int64_t batch_dims) { return leaf.sizes().slice(batch_dims); }

/// Returns a tensor of the batch size of `tree` that holds one element: what becomes of its dims becomes of the batch
/// dims, also where the tree has no leaves.
at::Tensor batch_sample(const TensorDict& tree);

using BatchFunction = absl::FunctionRef<at::Tensor(const at::Tensor&)>;

/// Applies `function` to every leaf; the result has `batch_size` and is locked if the tree is.
TensorDict map_batch(const TensorDict& tree, std::vector<int64_t> batch_size, BatchFunction function);

/// The same for a function that only views: the sample, viewed by it, shows the new batch size.
TensorDict map_batch(const TensorDict& tree, BatchFunction function);

}  // namespace graft::internal
