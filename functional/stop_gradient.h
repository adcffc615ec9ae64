// stop_gradient: a value as a constant, for every derivative.
//
//   auto loss = [](const Tensor& w, const Tensor& x) { return (w * x - stop_gradient(w).mean()).square().sum(); };
//
// Neither grad, vjp, jvp nor ordinary autograd goes through the result. It shares the value's memory.
// jax.lax.stop_gradient; Python: Tensor.detach.
#pragma once

#include <utility>

#include "functional/tree.h"

namespace graft {

/// Returns the tree with each tensor detached, in all transforms that are running.
template <Tree T>
T stop_gradient(T value) {
  for (const TreePart& part : collect_parts(value)) {
    replace_tensors(part, [](const Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; });
  }
  return value;
}

}  // namespace graft
