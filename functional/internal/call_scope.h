// CallScope: a module's leaves for the time of one functional_call.
#pragma once

#include <optional>
#include <vector>

#include "functional/internal/installation.h"
#include "functional/internal/leaf_redirect.h"

namespace graft::internal {

/// Installs the leaves as they are, ties included, and redirects those that no known handle reaches.
class CallScope {
 public:
  CallScope(torch::nn::Module& module, const std::vector<const TensorDict*>& trees);

  /// Returns the leaf if `tensor` is a parameter that was redirected, else `tensor`.
  at::Tensor leaf_for(const at::Tensor& tensor) const;

 private:
  Installation installation_;
  std::optional<RedirectScope> redirect_;
};

}  // namespace graft::internal
