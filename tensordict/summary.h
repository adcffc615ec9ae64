// How large a tree is: numbers and bytes, of all of it and of each part.
//
//   std::cout << summary(params);
//
//                    leaves  numbers     bytes
//   all                  12   21,034  82.16 KiB
//   encoder               8   16,640  65.00 KiB
//     layers              6   12,480  48.75 KiB
//   head                  4    4,394  17.16 KiB
//
// Leaves of several names that are one tensor count once.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "tensordict/tensordict.h"

namespace graft {

/// Returns how many numbers the leaves have. Python: TensorDict.param_count.
int64_t numel(const TensorDict& tree);

/// Returns how many bytes the numbers of the leaves take. Leaves that are views of one storage count each.
int64_t nbytes(const TensorDict& tree);

/// Writes a number of bytes as people read it: "512 B", "82.16 KiB".
std::string format_bytes(int64_t bytes);

/// Returns a table of the tree and its parts, down to `depth` names, in the order of the leaves. A part that holds
/// nothing but another part shares its line.
std::string summary(const TensorDict& tree, int64_t depth = 3);

}  // namespace graft
