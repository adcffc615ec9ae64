// Lists of tensors as vectors: all their elements in a row.
#pragma once

#include "tests/operators/operator.h"

namespace graft::testing {

Tensors concatenated(Tensors left, const Tensors& right);

/// Returns the elements of all in a row.
Tensor flat(const Tensors& tensors);

/// The inverse of flat.
Tensors like(const Tensors& shapes, const Tensor& elements);

Tensors randn_like(const Tensors& shapes);

/// Returns copies that require no grad.
Tensors copies(const Tensors& tensors);

Tensor dot(const Tensors& left, const Tensors& right);

/// Returns values + step * direction.
Tensors moved(const Tensors& values, const Tensors& direction, double step);

}  // namespace graft::testing
