// CallScope: a module's leaves for the time of one functional_call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "functional/internal/installation.h"
#include "functional/internal/leaf_redirect.h"
#include "functional/internal/module_claim.h"
#include "functional/tree.h"

namespace graft::internal {

/// Installs the leaves as they are, ties included, and redirects those that known handles alone do not reach. A
/// concurrent scope redirects them all and does not write to the module.
class CallScope {
 public:
  CallScope(torch::nn::Module& module, const std::vector<const TensorDict*>& trees, bool concurrent);

  /// Are there old tensors that operators are given leaves for?
  bool is_redirecting() const { return redirect_.has_value(); }

  /// Returns the leaf if `tensor` is a parameter that was redirected, else `tensor`.
  at::Tensor leaf_for(const at::Tensor& tensor) const;

  /// Comes after `forward` and leaf_for of its results: what needed no redirect in this call will get none in the next.
  void note_met();

  /// Returns a tensor of an argument as the scope leaves it alone: an alias if `tensor` is a redirected parameter.
  /// Comes before `forward`.
  at::Tensor argument(const at::Tensor& tensor);

  /// \throws c10::Error if autograd recorded since the arguments that `results` depend on a redirected parameter, or
  /// could not have recorded it.
  void check_gradients(const std::vector<TreePart>& results) const;

 private:
  void take_in(torch::nn::Module& module, bool concurrent);
  bool keep_leaves_apart();
  std::string name_of(const at::Tensor& leaf) const;

  std::vector<const TensorDict*> trees_;
  std::vector<TensorDict> copies_;            ///< of the trees, if some leaf had to be an alias
  std::optional<Installation> installation_;  ///< unless the scope is concurrent
  std::optional<ModuleClaim> claim_;          ///< if it is
  Redirects redirects_;
  std::optional<RedirectScope> redirect_;
  uint64_t begin_ = 0;  ///< of what `forward` records
};

}  // namespace graft::internal
