// Whether data can be copied into the leaves of a tree: asked for all of them before the first one is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "tensordict/key_table.h"

namespace graft::internal {

/// Checks that each value can be copied into its target: its shape broadcasts to the target's, no imaginary part is
/// lost, and the target may be written.
/// \throws c10::ValueError naming `call` and listing every leaf that cannot be written, under its path in `keys`.
void check_writable(std::string_view call, const KeyTable& keys, const std::vector<at::Tensor>& targets,
                    const std::vector<at::Tensor>& values);

}  // namespace graft::internal
