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
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace graft::internal {

class RedirectScope {
 public:
  using Map = absl::flat_hash_map<const at::TensorImpl*, at::Tensor>;

  /// Redirects the first of each pair to the second. Composed with an outer scope on this thread: what that redirects
  /// to an old tensor of this one is redirected on, and a leaf that it redirects stands for what it is redirected to.
  explicit RedirectScope(const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs);
  ~RedirectScope();
  RedirectScope(const RedirectScope&) = delete;
  RedirectScope& operator=(const RedirectScope&) = delete;

  /// Returns the leaf for an old tensor, and any other tensor as it is: for results that passed no operator.
  at::Tensor leaf_for(const at::Tensor& tensor) const;

 private:
  Map map_;
  const Map* outer_map_;
  const void* outer_node_;
  c10::impl::IncludeDispatchKeyGuard key_;
};

}  // namespace graft::internal
