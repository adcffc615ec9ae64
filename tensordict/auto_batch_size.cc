#include "tensordict/auto_batch_size.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace graft {

TensorDict& auto_batch_size_(TensorDict& tree, std::optional<int64_t> batch_dims) {
  TORCH_CHECK_VALUE(batch_dims.value_or(0) >= 0, "auto_batch_size_: batch_dims is ", batch_dims.value_or(0),
                    ", expected none or a number that is not negative");
  if (tree.empty()) return tree;
  at::IntArrayRef shared = tree.values().front().sizes();
  for (const at::Tensor& leaf : tree.values()) {
    const std::size_t dims = std::min(shared.size(), leaf.sizes().size());
    const auto end = std::mismatch(shared.begin(), shared.begin() + dims, leaf.sizes().begin()).first;
    shared = shared.slice(0, static_cast<std::size_t>(end - shared.begin()));
  }
  if (batch_dims) shared = shared.slice(0, std::min(shared.size(), static_cast<std::size_t>(*batch_dims)));
  tree.set_batch_size(shared.vec());
  return tree;
}

}  // namespace graft
