#include "tensordict/map.h"

#include <utility>

#include "tensordict/internal/write_check.h"
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

Tensors results(const char* call, const TensorDict& left, const TensorDict& right, LeafPairFunction function) {
  const Tensors right_values = aligned_values(call, left, right);
  Tensors values;
  values.reserve(left.size());
  for (std::size_t i = 0; i < left.size(); ++i) values.push_back(function(left.values()[i], right_values[i]));
  return values;
}

/// Copies `values` into the leaves of `tree`.
const TensorDict& write(const char* call, const TensorDict& tree, const Tensors& values) {
  internal::write_values(call, *tree.keys(), tree.values(), values);
  return tree;
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
  return left.with_values(results("zip_map", left, right, function)).unlocked();
}

TensorDict zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function,
                   std::vector<int64_t> batch_size) {
  return TensorDict(left.keys(), results("zip_map", left, right, function), std::move(batch_size));
}

TensorDict zip_map(const TensorDict& first, const TensorDict& second, const TensorDict& third,
                   LeafTripleFunction function) {
  const Tensors seconds = aligned_values("zip_map", first, second);
  const Tensors thirds = aligned_values("zip_map", first, third);
  Tensors values;
  values.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    values.push_back(function(first.values()[i], seconds[i], thirds[i]));
  }
  return first.with_values(std::move(values)).unlocked();
}

const TensorDict& map_(const TensorDict& tree, LeafFunction function) {
  const auto ignore_path = [&](const std::string&, const at::Tensor& value) { return function(value); };
  return write("map_", tree, results(tree, ignore_path));
}

const TensorDict& named_map_(const TensorDict& tree, NamedLeafFunction function) {
  return write("named_map_", tree, results(tree, function));
}

const TensorDict& zip_map_(const TensorDict& tree, const TensorDict& other, LeafPairFunction function) {
  return write("zip_map_", tree, results("zip_map_", tree, other, function));
}

}  // namespace graft
