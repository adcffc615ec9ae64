#include "tensordict/copy.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "tensordict/ties.h"

namespace graft {
namespace {

using Tensors = std::vector<at::Tensor>;

/// Returns the tree of what `function` makes of each leaf, locked if `tree` is; a tensor that has several names is
/// given to it once.
template <typename Function>
TensorDict each_distinct(const TensorDict& tree, Function function) {
  const std::vector<std::size_t> ties = tie_positions(tree.values());
  Tensors results;
  results.reserve(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    results.push_back(ties[i] == i ? function(tree.values()[i]) : at::Tensor(results[ties[i]]));
  }
  return tree.with_values(std::move(results));
}

}  // namespace

TensorDict clone(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.clone(); }).unlocked();
}

TensorDict detach(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.detach(); });
}

TensorDict data(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.data(); });
}

TensorDict contiguous(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.contiguous(); }).unlocked();
}

bool is_contiguous(const TensorDict& tree) {
  return std::all_of(tree.values().begin(), tree.values().end(),
                     [](const at::Tensor& leaf) { return leaf.is_contiguous(); });
}

TensorDict to(const TensorDict& tree, at::ScalarType dtype) {
  return each_distinct(tree, [&](const at::Tensor& leaf) { return leaf.to(dtype); });
}

TensorDict to(const TensorDict& tree, at::Device device, const ToOptions& options) {
  return each_distinct(tree, [&](const at::Tensor& leaf) {
    return leaf.to(leaf.options().device(device), options.non_blocking, options.copy);
  });
}

TensorDict cpu(const TensorDict& tree) { return to(tree, at::Device(at::kCPU)); }
TensorDict cuda(const TensorDict& tree) { return to(tree, at::Device(at::kCUDA)); }

std::optional<at::Device> device(const TensorDict& tree) {
  if (tree.empty()) return std::nullopt;
  const at::Device first = tree.values().front().device();
  const auto is_there = [&](const at::Tensor& leaf) { return leaf.device() == first; };
  const Tensors& leaves = tree.values();
  return std::all_of(leaves.begin(), leaves.end(), is_there) ? std::optional(first) : std::nullopt;
}

TensorDict pin_memory(const TensorDict& tree) {
  return each_distinct(tree, [](const at::Tensor& leaf) { return leaf.pin_memory(); });
}

}  // namespace graft
