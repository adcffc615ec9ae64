#include "tensordict/reduce.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <optional>

#include "absl/functional/function_ref.h"
#include "tensordict/global_reduce.h"
#include "tensordict/internal/batch_dims.h"
#include "tensordict/internal/dtypes.h"
#include "tensordict/internal/for_all_leaves.h"

namespace graft {
namespace {

using internal::check_dtypes;
using internal::check_floating_or_complex;
using internal::Tensors;
using Kind = ReducedDims::Kind;

/// Reduces one leaf over dims, of which there is at least one.
using Reduction = absl::FunctionRef<at::Tensor(const at::Tensor& value, at::IntArrayRef dims, bool keepdim)>;

/// Returns the named batch dims, counted from the front and in order.
std::vector<int64_t> sorted_dims(const char* call, const TensorDict& tree, const std::vector<int64_t>& named) {
  std::vector<int64_t> dims = internal::wrap_dims(call, named, tree);
  std::sort(dims.begin(), dims.end());
  return dims;
}

/// Returns `sizes` without `dims`, or with size 1 in those.
std::vector<int64_t> reduced(const std::vector<int64_t>& sizes, const std::vector<int64_t>& dims, bool keepdim) {
  std::vector<int64_t> result;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const bool stays = !std::binary_search(dims.begin(), dims.end(), static_cast<int64_t>(d));
    if (stays || keepdim) result.push_back(stays ? sizes[d] : 1);
  }
  return result;
}

std::vector<int64_t> dims_from(int64_t first, int64_t end) {
  std::vector<int64_t> dims;
  for (int64_t dim = first; dim < end; ++dim) dims.push_back(dim);
  return dims;
}

/// Reduces over `dims`; over none it is as over a dim of size 1, which LibTorch would take for all.
at::Tensor reduce_leaf(const at::Tensor& value, at::IntArrayRef dims, bool keepdim, Reduction reduction) {
  return dims.empty() ? reduction(value.unsqueeze(-1), {-1}, false) : reduction(value, dims, keepdim);
}

TensorDict reduce_all(const TensorDict& tree, bool keepdim, Reduction reduction) {
  Tensors results;
  results.reserve(tree.size());
  for (const at::Tensor& value : tree.values()) {
    results.push_back(reduce_leaf(value, dims_from(0, value.dim()), keepdim, reduction));
  }
  return TensorDict(tree.keys(), std::move(results), std::vector<int64_t>(keepdim ? tree.batch_size().size() : 0, 1));
}

TensorDict reduce_features(const TensorDict& tree, bool keepdim, Reduction reduction) {
  const NestedSizes& nested = tree.nested_sizes();
  Tensors results;
  results.reserve(tree.size());
  for (const auto& [path, value] : tree.leaves()) {
    const int64_t nested_dims = nested.empty() ? 0 : static_cast<int64_t>(nested.at(path).size());
    results.push_back(reduce_leaf(value, dims_from(tree.batch_dims() + nested_dims, value.dim()), keepdim, reduction));
  }
  return tree.with_values(std::move(results)).unlocked();
}

TensorDict reduce(const char* call, const TensorDict& tree, const ReducedDims& over, bool keepdim,
                  Reduction reduction) {
  if (over.kind() == Kind::kAll) return reduce_all(tree, keepdim, reduction);
  if (over.kind() == Kind::kFeatures) return reduce_features(tree, keepdim, reduction);
  const std::vector<int64_t> dims = sorted_dims(call, tree, over.dims());
  Tensors results;
  results.reserve(tree.size());
  for (const at::Tensor& value : tree.values()) results.push_back(reduce_leaf(value, dims, keepdim, reduction));
  return tree.with_values(std::move(results), reduced(tree.batch_size(), dims, keepdim)).unlocked();
}

/// For functions that take one dim: reduces over the one that `dims` are made into.
at::Tensor over_one_dim(const at::Tensor& value, at::IntArrayRef dims, bool keepdim,
                        absl::FunctionRef<at::Tensor(const at::Tensor&)> over_last) {
  const auto count = static_cast<int64_t>(dims.size());
  at::Tensor result = over_last(value.movedim(dims, dims_from(-count, 0)).flatten(-count));
  if (!keepdim) return result;
  for (const int64_t dim : dims) result = result.unsqueeze(dim);
  return result;
}

/// Computes values and indices of each leaf along a batch dim, for a result of this batch size.
template <typename Function>
ValuesAndIndices along(const TensorDict& tree, const std::vector<int64_t>& batch_size, Function function) {
  Tensors values, indices;
  for (const at::Tensor& leaf : tree.values()) {
    auto [value, index] = function(leaf);
    values.push_back(std::move(value));
    indices.push_back(std::move(index));
  }
  return {tree.with_values(std::move(values), batch_size).unlocked(),
          tree.with_values(std::move(indices), batch_size).unlocked()};
}

}  // namespace

// Functions that LibTorch computes over several dims at once.
#define GRAFT_REDUCTION(name, check, call)                                                                             \
  TensorDict name(const TensorDict& tree, const ReducedDims& dims, bool keepdim) {                                     \
    check;                                                                                                             \
    return reduce(#name, tree, dims, keepdim, [](const at::Tensor& x, at::IntArrayRef d, bool keep) { return call; }); \
  }
GRAFT_REDUCTION(sum, , at::sum(x, d, keep))
GRAFT_REDUCTION(prod, , over_one_dim(x, d, keep, [](const at::Tensor& last) { return at::prod(last, -1); }))
GRAFT_REDUCTION(amax, , at::amax(x, d, keep))
GRAFT_REDUCTION(amin, , at::amin(x, d, keep))
GRAFT_REDUCTION(logsumexp, , at::logsumexp(x, d, keep))
GRAFT_REDUCTION(mean, check_floating_or_complex("mean", tree), at::mean(x, d, keep))
GRAFT_REDUCTION(nanmean, check_floating_or_complex("nanmean", tree), at::nanmean(x, d, keep))
GRAFT_REDUCTION(nansum, , at::nansum(x, d, keep))
GRAFT_REDUCTION(norm, check_floating_or_complex("norm", tree), at::linalg_vector_norm(x, 2, d, keep))
GRAFT_REDUCTION(all, , at::all(x, d, keep))
GRAFT_REDUCTION(any, , at::any(x, d, keep))
#undef GRAFT_REDUCTION

TensorDict std(const TensorDict& tree, const ReducedDims& dims, bool keepdim, int64_t correction) {
  check_floating_or_complex("std", tree);
  return reduce("std", tree, dims, keepdim, [&](const at::Tensor& x, at::IntArrayRef d, bool keep) {
    return at::std(x, d, std::optional<at::Scalar>(correction), keep);
  });
}

TensorDict var(const TensorDict& tree, const ReducedDims& dims, bool keepdim, int64_t correction) {
  check_floating_or_complex("var", tree);
  return reduce("var", tree, dims, keepdim, [&](const at::Tensor& x, at::IntArrayRef d, bool keep) {
    return at::var(x, d, std::optional<at::Scalar>(correction), keep);
  });
}

TensorDict quantile(const TensorDict& tree, double q, const ReducedDims& dims, bool keepdim) {
  const auto is_taken = [](const at::Tensor& x) {
    return x.scalar_type() == at::kFloat || x.scalar_type() == at::kDouble;
  };
  check_dtypes("quantile", tree, is_taken, "float or double");
  return reduce("quantile", tree, dims, keepdim, [&](const at::Tensor& x, at::IntArrayRef d, bool keep) {
    return over_one_dim(x, d, keep, [&](const at::Tensor& last) { return at::quantile(last, q, -1); });
  });
}

at::Tensor all(const TensorDict& tree) { return global_all(tree); }
at::Tensor any(const TensorDict& tree) { return global_any(tree); }

// Extremes along a dim, which goes or becomes 1, and those up to each place.
#define GRAFT_EXTREMES(name)                                                                           \
  ValuesAndIndices name(const TensorDict& tree, int64_t dim, bool keepdim) {                           \
    dim = internal::wrap_dim(#name, dim, tree.batch_dims());                                           \
    return along(tree, reduced(tree.batch_size(), {dim}, keepdim),                                     \
                 [&](const at::Tensor& x) { return at::name(x, dim, keepdim); });                      \
  }                                                                                                    \
  ValuesAndIndices cum##name(const TensorDict& tree, int64_t dim) {                                    \
    dim = internal::wrap_dim("cum" #name, dim, tree.batch_dims());                                     \
    return along(tree, tree.batch_size(), [&](const at::Tensor& x) { return at::cum##name(x, dim); }); \
  }
GRAFT_EXTREMES(max)
GRAFT_EXTREMES(min)
#undef GRAFT_EXTREMES

TensorDict softmax(const TensorDict& tree, int64_t dim) {
  check_dtypes(
      "softmax", tree, [](const at::Tensor& x) { return x.is_floating_point(); }, "a floating one");
  dim = internal::wrap_dim("softmax", dim, tree.batch_dims());
  return tree.map([&](const at::Tensor& x) { return at::softmax(x, dim); });
}

}  // namespace graft
