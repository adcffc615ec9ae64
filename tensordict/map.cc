#include "tensordict/map.h"

#include <utility>

#include "tensordict/structure.h"

namespace graft {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors results(const TensorDict& tree, NamedLeafFunction function) {
  Tensors values;
  values.reserve(tree.size());
  for (const auto& [path, value] : tree.leaves()) values.push_back(function(path, value));
  return values;
}

Tensors results(const TensorDict& left, const TensorDict& right, LeafPairFunction function) {
  const Tensors right_values = aligned_values("zip_map", left, right);
  Tensors values;
  values.reserve(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) values.push_back(function(left.values()[i], right_values[i]));
  return values;
}

}  // namespace

TensorDict map(const TensorDict& tree, LeafFunction function) { return tree.map(function); }

TensorDict map(const TensorDict& tree, LeafFunction function, std::vector<int64_t> batch_size) {
  const auto ignore_path = [&](const std::string&, const at::Tensor& value) { return function(value); };
  return named_map(tree, ignore_path, std::move(batch_size));
}

TensorDict named_map(const TensorDict& tree, NamedLeafFunction function) {
  return tree.with_values(results(tree, function)).unlocked();
}

TensorDict named_map(const TensorDict& tree, NamedLeafFunction function, std::vector<int64_t> batch_size) {
  return TensorDict(tree.keys(), results(tree, function), std::move(batch_size));
}

TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function) {
  return left.with_values(results(left, right, function)).unlocked();
}

TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function,
                   std::vector<int64_t> batch_size) {
  return TensorDict(left.keys(), results(left, right, function), std::move(batch_size));
}

}  // namespace graft
