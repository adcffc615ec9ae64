// A tree as one vector of numbers and back, for optimisers and solvers that know vectors alone.
//
//   at::Tensor flat = pack(params);                         // [n]; one sample a row, [b, n], if the batch size is [b]
//   TensorDict back = unpack(flat - rate * direction, params);
//
// Leaves come in their order, each row by row. Gradients flow through both functions. See also consolidate, which puts
// leaves of any dtype into one buffer of bytes. Python: torch.nn.utils.parameters_to_vector, tensordict's PackLayout.
#pragma once

#include <ATen/core/Tensor.h>

#include "tensordict/tensordict.h"

namespace graft {

/// Copies all numbers of the leaves into one tensor: leaves `[b..., rest...] -> [b..., n]`. The batch dims of the tree
/// stay; those that parts have beyond are packed as well. A tree without leaves gives [b..., 0] of the default dtype.
/// \throws c10::ValueError listing every leaf whose dtype or device is not that of the first one.
at::Tensor pack(const TensorDict& tree);

/// Returns a tree with the keys, and for each sample the leaf shapes, of `like`, whose leaves are views of `flat`:
/// `[b..., n] -> [b..., rest...]`. The batch size is that of `flat`, which need not be that of `like`: a stack of
/// vectors becomes a tree of stacks. The result is not locked.
/// \throws c10::ValueError if the last dim of `flat` is not the number of numbers in a sample of `like`.
TensorDict unpack(const at::Tensor& flat, const TensorDict& like);

}  // namespace graft
