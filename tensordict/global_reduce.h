// Reductions of a whole tree, as if all leaves were one tensor: the norm of a gradient, the product of two.
//
//   at::Tensor length = global_norm(gradients);                        // one number
//   at::Tensor lengths = global_norm(per_sample, /*batch_dims=*/1);    // one for each sample, [n]
//
// `batch_dims` is how many of the first dims of every leaf stay: the result has their sizes, {} unless told otherwise.
// Leaves of several dtypes give the dtype that they promote to, those of several devices a result where the first leaf
// is. A tensor under two names counts twice. Gradients flow, and all of it works inside vmap and grad.
//
// An empty tree has the sum 0, the product 1, the norm 0 and no mean (NaN). All throw c10::ValueError listing every
// leaf whose dtype the function does not take or, with `batch_dims`, whose first dims are not those of the first leaf.
//
// Python: `reduce=True` of the reductions of TensorDict. Each leaf on its own: reduce.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensordict/tensordict.h"

namespace graft {

// Leaves of any dtype.
at::Tensor global_sum(const TensorDict& tree, int64_t batch_dims = 0);
at::Tensor global_prod(const TensorDict& tree, int64_t batch_dims = 0);
at::Tensor global_all(const TensorDict& tree, int64_t batch_dims = 0);
at::Tensor global_any(const TensorDict& tree, int64_t batch_dims = 0);

/// Return the extremes. \throws c10::ValueError also if there is no element.
at::Tensor global_amax(const TensorDict& tree, int64_t batch_dims = 0);
at::Tensor global_amin(const TensorDict& tree, int64_t batch_dims = 0);

// Leaves of floating or complex dtype.
at::Tensor global_mean(const TensorDict& tree, int64_t batch_dims = 0);
at::Tensor global_std(const TensorDict& tree, int64_t batch_dims = 0, int64_t correction = 1);
at::Tensor global_var(const TensorDict& tree, int64_t batch_dims = 0, int64_t correction = 1);

/// Returns the Euclidean norm; its derivative where all is zero is zero.
at::Tensor global_norm(const TensorDict& tree, int64_t batch_dims = 0);

/// Returns the sum of `left * right` over all elements of both trees, which are aligned by path; complex numbers are
/// not conjugated.
/// \throws c10::ValueError also listing every key that only one of the trees has and every leaf of another shape.
at::Tensor dot(const TensorDict& left, const TensorDict& right, int64_t batch_dims = 0);

}  // namespace graft
