// The live parameters and buffers of several modules as one LazyStack: nothing is copied until it is read, optimisers
// of the modules stay valid, and gradients reach every module.
//
//   LazyStack states = lazy_from_modules(nets);
//   Tensor y = vmap(forward, {.in_dims = {0, std::nullopt}})(states.stack(), x);
//   y.sum().backward();                                     // fills net->weight.grad() of each net
//
// from_modules copies once, which is faster where the members need not stay themselves.
// Python: TensorDict.from_modules(..., lazy_stack=True).
#pragma once

#include "tensordict/lazy_stack.h"
#include "vmap/stacked_state.h"

namespace graft {

/// Returns the trees that from_module gives of the modules. They need not be alike: shapes and keys may differ.
/// \throws c10::ValueError if the list is empty.
LazyStack lazy_from_modules(const ModuleRefs& modules);

}  // namespace graft
