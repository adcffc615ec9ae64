// Batch dims of parts that go from one tree to another with their leaves.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

/// Gives each part of `tree` for which `is_wanted` the batch dims that it has in `source`, where these go on from those
/// it has. \throws c10::ValueError listing every leaf of such a part that does not start with them.
void take_part_sizes(TensorDict& tree, const TensorDict& source,
                     absl::FunctionRef<bool(const std::string& part)> is_wanted);

/// The same for all parts.
inline void take_part_sizes(TensorDict& tree, const TensorDict& source) {
  take_part_sizes(tree, source, [](const std::string&) { return true; });
}

}  // namespace graft::internal
