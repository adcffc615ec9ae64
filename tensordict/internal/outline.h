// A tree as people read it: a line for each part and each leaf, parts before what lies in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft::internal {

/// One part or leaf.
struct OutlineLine {
  std::string name;  ///< the end of its path that the lines around it do not show
  std::string path;
  int64_t depth;                      ///< how many lines lie around it
  std::optional<std::size_t> around;  ///< the innermost of those
  std::optional<std::size_t> leaf;    ///< the position, if it is a leaf
};

/// Returns the lines of `tree`, parts in the order in which their first leaves appear. A part that holds one thing
/// alone shares its line, "a.b", unless it has batch dims of its own.
std::vector<OutlineLine> outline(const TensorDict& tree);

}  // namespace graft::internal
