// Reductions of the leaves of a tree, each on its own: sum, mean, norm and their like.
//
//   sum(td)                    // each leaf to one number; the batch size of the result is {}
//   mean(td, 0)                // over a batch dim, as for the mean of an ensemble
//   amax(td, {0, -1}, true)    // over several, which stay as dims of size 1
//   norm(td, kFeatureDims)     // over the dims beyond the batch dims: one number a sample and leaf
//
// A part with batch dims of its own keeps them, except when each leaf becomes one number; its feature dims are those
// beyond its own batch dims. Results have the keys and order of the tree and are not locked. Gradients flow, and all of
// it works inside vmap and grad. One number over all leaves: global_reduce.h.
//
// All throw c10::IndexError for a dim that is no batch dim, and c10::ValueError for one that is named twice and listing
// every leaf whose dtype the function does not take: `to` (copy.h) converts them.
//
// Python: the methods of TensorDict of these names, `kFeatureDims` being its dim="feature".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

/// The dims of each leaf that a reduction takes away: kAllDims, kFeatureDims, or batch dims, which may be negative and
/// are then counted from the last one.
class ReducedDims {
 public:
  enum class Kind { kAll, kFeatures, kBatch };

  constexpr explicit ReducedDims(Kind kind) : kind_(kind) {}
  ReducedDims(int64_t dim) : kind_(Kind::kBatch), dims_{dim} {}                            // NOLINT: dims are numbers
  ReducedDims(std::initializer_list<int64_t> dims) : kind_(Kind::kBatch), dims_(dims) {}   // NOLINT
  ReducedDims(std::vector<int64_t> dims) : kind_(Kind::kBatch), dims_(std::move(dims)) {}  // NOLINT

  Kind kind() const { return kind_; }
  /// Those named; empty unless the kind is kBatch.
  const std::vector<int64_t>& dims() const { return dims_; }

 private:
  Kind kind_;
  std::vector<int64_t> dims_;
};

inline const ReducedDims kAllDims(ReducedDims::Kind::kAll);
inline const ReducedDims kFeatureDims(ReducedDims::Kind::kFeatures);

// Leaves of any dtype; whole numbers and bools are summed and multiplied as int64. nansum leaves out what is NaN.
TensorDict sum(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict nansum(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict prod(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict amax(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict amin(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict logsumexp(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);

// Leaves of floating or complex dtype. nanmean leaves out what is NaN, norm is the Euclidean one.
TensorDict mean(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict nanmean(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);
TensorDict norm(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false);

/// The spread, and its square: sums are divided by the number of elements less `correction`.
TensorDict std(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false,
               int64_t correction = 1);
TensorDict var(const TensorDict& tree, const ReducedDims& dims = kAllDims, bool keepdim = false,
               int64_t correction = 1);

/// Returns the value below which the part `q` of the elements lies, between two of them by linear interpolation. The
/// leaves are of float or double.
TensorDict quantile(const TensorDict& tree, double q, const ReducedDims& dims = kAllDims, bool keepdim = false);

/// Say whether all elements, or any, are true; to one tensor of bool for the whole tree, {} in shape. Of an empty tree
/// all are, and none is. Python returns a bool, which a tensor inside vmap cannot be.
at::Tensor all(const TensorDict& tree);
at::Tensor any(const TensorDict& tree);

/// The same for each leaf.
TensorDict all(const TensorDict& tree, const ReducedDims& dims, bool keepdim = false);
TensorDict any(const TensorDict& tree, const ReducedDims& dims, bool keepdim = false);

/// The values that were found, and where along the dim.
struct ValuesAndIndices {
  TensorDict values;
  TensorDict indices;
};

/// Return the extremes along a batch dim. See amax and amin for those of several dims, without the places.
ValuesAndIndices max(const TensorDict& tree, int64_t dim, bool keepdim = false);
ValuesAndIndices min(const TensorDict& tree, int64_t dim, bool keepdim = false);

/// Return for each place along a batch dim the extremes up to there.
ValuesAndIndices cummax(const TensorDict& tree, int64_t dim);
ValuesAndIndices cummin(const TensorDict& tree, int64_t dim);

/// Returns positive numbers that sum to one along a batch dim. The leaves are of floating dtype.
TensorDict softmax(const TensorDict& tree, int64_t dim);

}  // namespace graft
