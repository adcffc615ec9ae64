#include "tensordict/ties.h"

#include "absl/container/flat_hash_map.h"

namespace graft {

std::vector<std::size_t> tie_positions(const std::vector<at::Tensor>& tensors) {
  absl::flat_hash_map<const at::TensorImpl*, std::size_t> first;
  first.reserve(tensors.size());
  std::vector<std::size_t> positions;
  positions.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    positions.push_back(first.emplace(tensors[i].unsafeGetTensorImpl(), i).first->second);
  }
  return positions;
}

std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  const std::vector<std::size_t> ties = tie_positions(tensors);
  std::vector<at::Tensor> result;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (ties[i] == i) result.push_back(tensors[i]);
  }
  return result;
}

}  // namespace graft
