#include "tensordict/unary.h"

#include <ATen/Functions.h>

#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/write_leaves.h"

namespace graft {

#define GRAFT_DEFINE(name)                                                                                           \
  TensorDict name(const TensorDict& tree) {                                                                          \
    return tree.with_values(internal::for_all_leaves([](const auto& leaves) { return at::_foreach_##name(leaves); }, \
                                                     [](const auto& leaf) { return leaf.name(); }, tree.values()));  \
  }                                                                                                                  \
  const TensorDict& name##_(const TensorDict& tree) {                                                                \
    internal::write_leaves(                                                                                          \
        #name "_", tree, [](const auto& leaves) { at::_foreach_##name##_(leaves); },                                 \
        [](const auto& leaf) { leaf.name##_(); });                                                                   \
    return tree;                                                                                                     \
  }
GRAFT_UNARY_FUNCTIONS(GRAFT_DEFINE)
#undef GRAFT_DEFINE

}  // namespace graft
