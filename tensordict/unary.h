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
// return their argument. They throw c10::ValueError listing every leaf of whole numbers whose results are none; nothing
// is changed then.
#pragma once

#include "tensordict/tensordict.h"

namespace graft {

// The functions, and what each makes of whole numbers: others of the kind, or floating numbers.
#define GRAFT_UNARY_FUNCTIONS(X) \
  X(abs, kOfItsKind)             \
  X(acos, kFloating)             \
  X(asin, kFloating)             \
  X(atan, kFloating)             \
  X(ceil, kOfItsKind)            \
  X(cos, kFloating)              \
  X(cosh, kFloating)             \
  X(erf, kFloating)              \
  X(erfc, kFloating)             \
  X(exp, kFloating)              \
  X(expm1, kFloating)            \
  X(floor, kOfItsKind)           \
  X(frac, kOfItsKind)            \
  X(lgamma, kFloating)           \
  X(log, kFloating)              \
  X(log10, kFloating)            \
  X(log1p, kFloating)            \
  X(log2, kFloating)             \
  X(neg, kOfItsKind)             \
  X(reciprocal, kFloating)       \
  X(round, kOfItsKind)           \
  X(sigmoid, kFloating)          \
  X(sign, kOfItsKind)            \
  X(sin, kFloating)              \
  X(sinh, kFloating)             \
  X(sqrt, kFloating)             \
  X(tan, kFloating)              \
  X(tanh, kFloating)             \
  X(trunc, kOfItsKind)

#define GRAFT_DECLARE(name, result)        \
  TensorDict name(const TensorDict& tree); \
  const TensorDict& name##_(const TensorDict& tree);
GRAFT_UNARY_FUNCTIONS(GRAFT_DECLARE)
#undef GRAFT_DECLARE

}  // namespace graft
