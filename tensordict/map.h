// Applying a function to every leaf of a tree, or to the leaves of two trees pair by pair.
//
//   TensorDict half = map(td, [](const at::Tensor& t) { return t * 0.5; });
//   TensorDict sum = zip_map(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x + y; });
//
// Leaves are visited in order, and what the function throws passes through. The result shares the table of keys of the
// (first) tree. It has its batch sizes too, unless another is given for the whole tree; every new leaf has to start
// with its own. No result is locked.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensordict/tensordict.h"

namespace graft {

using LeafFunction = absl::FunctionRef<at::Tensor(const at::Tensor&)>;
using NamedLeafFunction = absl::FunctionRef<at::Tensor(const std::string& path, const at::Tensor&)>;
using LeafPairFunction = absl::FunctionRef<at::Tensor(const at::Tensor&, const at::Tensor&)>;

/// Applies `function` to every leaf.
/// \throws c10::ValueError listing every leaf of the result that does not start with the batch size.
TensorDict map(const TensorDict& tree, LeafFunction function);

/// The same for a result with other batch dims.
TensorDict map(const TensorDict& tree, LeafFunction function, std::vector<int64_t> batch_size);

/// Applies `function` to every path and leaf.
/// \throws c10::ValueError as map.
TensorDict named_map(const TensorDict& tree, NamedLeafFunction function);

/// The same for a result with other batch dims.
TensorDict named_map(const TensorDict& tree, NamedLeafFunction function, std::vector<int64_t> batch_size);

/// Applies `function` to the leaves of both trees that have one path, in the order of `left`.
/// \throws c10::ValueError as map, and listing every key that only one of the trees has.
TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function);

/// The same for a result with other batch dims.
TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function,
                   std::vector<int64_t> batch_size);

}  // namespace graft
