// Whether trees can be joined: all have to be like the first one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft::internal {

/// Checks that all members have the keys, batch sizes, shapes, dtypes and devices of the first, but for the size of
/// batch dim `free_dim`.
/// \throws c10::ValueError listing for each member what differs.
void check_members(std::string_view call, const std::vector<TensorDict>& members, std::optional<int64_t> free_dim);

}  // namespace graft::internal
