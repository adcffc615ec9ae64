// Prints a tree: a line for the tree, then one for each part and leaf, with dtype, shape, bytes, and what is out of the
// ordinary.
//
//   TensorDict: 3 leaves, batch size [4], 160 B
//     obs       Float [4, 3]  48 B
//     next      batch size [4, 3]
//       obs     Float [4, 3]  48 B  cuda:0, requires grad
//       reward  Double [4, 3, 1]  96 B
#pragma once

#include <ostream>

#include "tensordict/tensordict.h"

namespace graft {

/// Writes what the leaves are, not their values. Of very large trees it shows the first thousand lines.
std::ostream& operator<<(std::ostream& stream, const TensorDict& tree);

}  // namespace graft
