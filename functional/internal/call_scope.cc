#include "functional/internal/call_scope.h"

#include <c10/util/Exception.h>

namespace graft::internal {
namespace {

const std::vector<const TensorDict*>& check_not_empty(const std::vector<const TensorDict*>& trees) {
  TORCH_CHECK_VALUE(!trees.empty(), "functional_call: expected one tree of parameters or several, got none");
  return trees;
}

}  // namespace

CallScope::CallScope(torch::nn::Module& module, const std::vector<const TensorDict*>& trees)
    : installation_(module, check_not_empty(trees),
                    {.call = "functional_call", .preserve_flags = false, .tie = true, .redirect = true}) {
  if (const auto pairs = installation_.redirects(); !pairs.empty()) redirect_.emplace(pairs);
}

at::Tensor CallScope::leaf_for(const at::Tensor& tensor) const {
  return redirect_ && tensor.defined() ? redirect_->leaf_for(tensor) : tensor;
}

}  // namespace graft::internal
