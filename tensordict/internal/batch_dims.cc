#include "tensordict/internal/batch_dims.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <utility>

namespace graft::internal {

int64_t wrap_dim(std::string_view call, int64_t dim, int64_t places) {
  TORCH_CHECK_INDEX(places > 0, call, "(dim=", dim, "): there are no batch dims");
  TORCH_CHECK_INDEX(-places <= dim && dim < places, call, "(dim=", dim, "): the batch dims allow ", -places,
                    " <= dim < ", places, " only");
  return dim < 0 ? dim + places : dim;
}

std::vector<int64_t> wrap_dims(std::string_view call, at::IntArrayRef dims, const TensorDict& tree) {
  std::vector<bool> seen(tree.batch_dims());
  std::vector<int64_t> wrapped;
  wrapped.reserve(dims.size());
  for (const int64_t dim : dims) {
    wrapped.push_back(wrap_dim(call, dim, tree.batch_dims()));
    TORCH_CHECK_VALUE(!seen[wrapped.back()], call, ": dim ", dim, " is given twice in ", dims);
    seen[wrapped.back()] = true;
  }
  return wrapped;
}

at::Tensor batch_sample(const TensorDict& tree) { return at::zeros({}, at::kBool).expand(tree.batch_size()); }

TensorDict map_batch(const TensorDict& tree, std::vector<int64_t> batch_size, BatchFunction function) {
  std::vector<at::Tensor> values;
  values.reserve(tree.size());
  for (const at::Tensor& value : tree.values()) values.push_back(function(value));
  return tree.with_values(std::move(values), std::move(batch_size));
}

TensorDict map_batch(const TensorDict& tree, BatchFunction function) {
  return map_batch(tree, function(batch_sample(tree)).sizes().vec(), function);
}

}  // namespace graft::internal
