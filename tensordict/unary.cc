#include "tensordict/unary.h"

#include <ATen/Functions.h>

#include "tensordict/internal/for_all_leaves.h"

namespace graft {

using internal::Result;

#define GRAFT_DEFINE(name, result)                                                                                   \
  TensorDict name(const TensorDict& tree) {                                                                          \
    return tree.with_values(internal::for_all_leaves([](const auto& leaves) { return at::_foreach_##name(leaves); }, \
                                                     [](const auto& leaf) { return leaf.name(); }, tree.values()));  \
  }                                                                                                                  \
  const TensorDict& name##_(const TensorDict& tree) {                                                                \
    internal::check_in_place(#name "_", tree, nullptr, Result::result);                                              \
    internal::for_all_leaves_([](const auto& leaves) { at::_foreach_##name##_(leaves); },                            \
                              [](const auto& leaf) { leaf.name##_(); }, tree.values());                              \
    return tree;                                                                                                     \
  }
GRAFT_UNARY_FUNCTIONS(GRAFT_DEFINE)
#undef GRAFT_DEFINE

}  // namespace graft
