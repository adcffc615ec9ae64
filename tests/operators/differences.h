// Central differences, which stand for derivatives where autograd has none.
#pragma once

#include <functional>

#include "tests/operators/operator.h"

namespace graft::testing {

/// The central difference of f along a direction.
Tensor difference(const std::function<Tensor(const Tensors&)>& f, const Tensors& at, const Tensors& direction);

/// The same along each element of its argument, as columns: [elements of the result, elements of the argument].
Tensor differences(const std::function<Tensor(const Tensors&)>& f, const Tensors& at);

}  // namespace graft::testing
