#include "tensordict/map.h"

#include <utility>

#include "tensordict/structure.h"

namespace graft {

TensorDict map(const TensorDict& tree, LeafFunction function) { return tree.map(function); }

TensorDict map(const TensorDict& tree, LeafFunction function, std::vector<int64_t> batch_size) {
  const auto ignore_path = [&](const std::string&, const at::Tensor& value) { return function(value); };
  return named_map(tree, ignore_path, std::move(batch_size));
}

TensorDict named_map(const TensorDict& tree, NamedLeafFunction function) {
  return named_map(tree, function, tree.batch_size());
}

TensorDict named_map(const TensorDict& tree, NamedLeafFunction function, std::vector<int64_t> batch_size) {
  std::vector<at::Tensor> results;
  results.reserve(tree.size());
  for (const auto& [path, value] : tree.leaves()) results.push_back(function(path, value));
  return TensorDict(tree.keys(), std::move(results), std::move(batch_size));
}

TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function) {
  return zip_map(left, right, function, left.batch_size());
}

TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function,
                   std::vector<int64_t> batch_size) {
  const std::vector<at::Tensor> right_values = aligned_values("zip_map", left, right);
  std::vector<at::Tensor> results;
  results.reserve(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) results.push_back(function(left.values()[i], right_values[i]));
  return TensorDict(left.keys(), std::move(results), std::move(batch_size));
}

}  // namespace graft
