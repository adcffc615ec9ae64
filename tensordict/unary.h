// Functions of one tree: exp, sqrt, tanh and their like, leaf by leaf.
//
//   TensorDict probabilities = sigmoid(logits);
//   sqrt_(variances);
//
// Each means what at::Tensor's function of that name means, and computes all leaves by one fused multi-tensor
// operation; inside vmap and grad, which have no rules for those, by one operation a leaf. Results have the keys and
// batch sizes of the tree and are locked if it is. Python: the methods of TensorDict of these names.
//
// The functions that end in an underscore change the data of the leaves, which every tree that shares them sees, and
// return their argument. They throw c10::ValueError listing every leaf that does not take the result, as whole numbers do
// not that of exp, or that cannot be written to; nothing is changed then.
#pragma once

#include "tensordict/tensordict.h"

namespace graft {

// The list of the functions.
#define GRAFT_UNARY_FUNCTIONS(X) \
  X(abs)                         \
  X(acos)                        \
  X(asin)                        \
  X(atan)                        \
  X(ceil)                        \
  X(cos)                         \
  X(cosh)                        \
  X(erf)                         \
  X(erfc)                        \
  X(exp)                         \
  X(expm1)                       \
  X(floor)                       \
  X(frac)                        \
  X(lgamma)                      \
  X(log)                         \
  X(log10)                       \
  X(log1p)                       \
  X(log2)                        \
  X(neg)                         \
  X(reciprocal)                  \
  X(round)                       \
  X(sigmoid)                     \
  X(sign)                        \
  X(sin)                         \
  X(sinh)                        \
  X(sqrt)                        \
  X(tan)                         \
  X(tanh)                        \
  X(trunc)

#define GRAFT_DECLARE(name)                \
  TensorDict name(const TensorDict& tree); \
  const TensorDict& name##_(const TensorDict& tree);
GRAFT_UNARY_FUNCTIONS(GRAFT_DECLARE)
#undef GRAFT_DECLARE

}  // namespace graft
