// Applying a function to every leaf of a tree, or to the leaves of several trees that have one path.
//
//   TensorDict half = map(td, [](const at::Tensor& t) { return t * 0.5; });
//   TensorDict sum = zip_map(a, b, [](const at::Tensor& x, const at::Tensor& y) { return x + y; });
//   map_(td, [](const at::Tensor& t) { return t.clamp_min(0); });                // into the leaves themselves
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
using LeafTripleFunction = absl::FunctionRef<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;

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

/// The same for three trees.
TensorDict zip_map(const TensorDict& first, const TensorDict& second, const TensorDict& third,
                   LeafTripleFunction function);

// --- In place: what `function` makes of a leaf is copied into it, which every tree that shares it sees. The first copy
// is made when the function has returned for all leaves, so nothing is changed if it throws. Results broadcast to the
// shapes of the leaves and are converted to their dtypes. They return `tree`, which may be locked. Python: apply_.

/// \throws c10::ValueError listing every leaf that cannot be written: a result of another shape or kind of dtype, a
///     leaf that requires grad while grad mode is on, memory that an expanded leaf holds several times.
const TensorDict& map_(const TensorDict& tree, LeafFunction function);

/// \throws as map_.
const TensorDict& named_map_(const TensorDict& tree, NamedLeafFunction function);

/// Writes to the leaves of `tree`. \throws as map_, and listing every key that only one of the trees has.
const TensorDict& zip_map_(const TensorDict& tree, const TensorDict& other, LeafPairFunction function);

}  // namespace graft
