// Redirect: on this thread, until the scope ends, operators that are given an old tensor compute with a leaf instead.
//
// NOTE: [Why a module needs redirected leaves]
// `forward` of a class that Graft knows nothing about reads its parameters from handles that nobody can reach. But it
// cannot compute with them except through operators, and every operator passes the dispatcher. A fallback on a
// dispatch key above all transforms looks at the arguments and exchanges the old tensors. Sizes, dtype, device and
// data pointers do not dispatch, so leaves must agree with the old tensors in these.
//
// The scope costs each operator about a tenth of a microsecond, so it is opened only for parameters without a known
// handle, and only inside a call that Graft makes.
//
// What passes no operator is not exchanged: `w.data()` and `w.grad()` are those of the old tensor, and a derivative
// with respect to `w` inside `forward` finds that nothing depends on it. A torch::autograd::Function applied to `w`
// computes with the leaf, but records `w` itself (functional/internal/recorded_graph.h finds that). Nor does an
// operator that `forward` runs on another thread exchange anything.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace graft::internal {

class RedirectScope {
 public:
  using Map = absl::flat_hash_map<const at::TensorImpl*, at::Tensor>;

  /// Redirects the first of each pair to the second. Composed with an outer scope on this thread: what that redirects
  /// to an old tensor of this one is redirected on, and a leaf that it redirects stands for what it is redirected to.
  explicit RedirectScope(const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs, bool notes_met = false);
  ~RedirectScope();
  RedirectScope(const RedirectScope&) = delete;
  RedirectScope& operator=(const RedirectScope&) = delete;

  /// Returns the leaf for an old tensor, and any other tensor as it is: for results that passed no operator.
  at::Tensor leaf_for(const at::Tensor& tensor) const;

  /// Was an operator given this old tensor? (Of a scope that notes it.)
  bool was_met(const at::TensorImpl* old_tensor) const { return met_->contains(old_tensor); }

  /// Is it an old tensor?
  bool exchanges(const at::Tensor& tensor) const { return map_.contains(tensor.unsafeGetTensorImpl()); }

  /// Returns what the scope leaves alone: for an old tensor that comes from elsewhere, not from a handle of the module,
  /// an alias that autograd knows to be one, and any other tensor as it is.
  at::Tensor kept(const at::Tensor& tensor) const;

 private:
  using Met = absl::flat_hash_set<const at::TensorImpl*>;

  Map map_;
  Met own_met_;
  Met* met_;  ///< this scope's or an outer one's; nullptr if none notes
  Met* outer_met_;
  const Map* outer_map_;
  const void* outer_node_;
  c10::impl::IncludeDispatchKeyGuard key_;
};

}  // namespace graft::internal
