// Prints a tree: a line for the tree, then one for each leaf with path, dtype, shape, and what is out of the ordinary.
//
//   TensorDict with 2 leaves, batch size [4]
//     obs: Float [4, 3]
//     next.obs: Float [4, 3] on cuda:0, requires grad
#pragma once

#include <ostream>

#include "tensordict/tensordict.h"

namespace graft {

/// Writes what the leaves are, not their values.
std::ostream& operator<<(std::ostream& stream, const TensorDict& tree);

}  // namespace graft
