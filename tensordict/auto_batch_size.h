// The batch size that leaves have anyhow: the leading dims that are the same in all of them.
#pragma once

#include <cstdint>
#include <optional>

#include "tensordict/tensordict.h"

namespace graft {

/// Makes the longest prefix that the shapes of all leaves share the batch size of `tree`, but at most `batch_dims` dims
/// of it. A tree without leaves keeps its batch size. Python: TensorDict.auto_batch_size_.
/// \throws c10::Error if the tree is locked.
/// \throws c10::ValueError if `batch_dims` is negative.
TensorDict& auto_batch_size_(TensorDict& tree, std::optional<int64_t> batch_dims = std::nullopt);

}  // namespace graft
