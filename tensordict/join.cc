#include "tensordict/join.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <numeric>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "tensordict/internal/batch_dims.h"
#include "tensordict/internal/members.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

using internal::check_members;
using internal::wrap_dim;
using Tensors = std::vector<at::Tensor>;

/// Joins the members' leaves, path by path.
TensorDict join(const std::vector<TensorDict>& members, std::vector<int64_t> batch_size,
                absl::FunctionRef<at::Tensor(const Tensors&)> join_leaves) {
  const TensorDict& first = members.front();
  std::vector<Tensors> aligned;  // of the members that have a table of their own
  aligned.reserve(members.size());
  std::vector<const Tensors*> values;
  for (const TensorDict& member : members) {
    const bool shares_table = member.keys() == first.keys();
    if (!shares_table) aligned.push_back(aligned_values("join", first, member));
    values.push_back(shares_table ? &member.values() : &aligned.back());
  }
  Tensors joined;
  joined.reserve(first.size());
  Tensors leaves(members.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    for (std::size_t j = 0; j < members.size(); ++j) leaves[j] = (*values[j])[i];
    joined.push_back(join_leaves(leaves));
  }
  return first.with_values(std::move(joined), std::move(batch_size)).unlocked();
}

/// Takes every leaf apart by `function`, which only views; so does the tree.
std::vector<TensorDict> take_apart(const TensorDict& tree, absl::FunctionRef<Tensors(const at::Tensor&)> function) {
  const Tensors samples = function(internal::batch_sample(tree));
  std::vector<Tensors> values(samples.size());
  for (Tensors& part : values) part.reserve(tree.size());
  for (const at::Tensor& value : tree.values()) {
    Tensors parts = function(value);
    for (std::size_t i = 0; i < parts.size(); ++i) values[i].push_back(std::move(parts[i]));
  }
  std::vector<TensorDict> trees;
  trees.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    trees.push_back(tree.with_values(std::move(values[i]), samples[i].sizes().vec()));
  }
  return trees;
}

}  // namespace

TensorDict stack(const std::vector<TensorDict>& members, int64_t dim) {
  TORCH_CHECK_VALUE(!members.empty(), "stack: no trees, expected at least one");
  const TensorDict& first = members.front();
  dim = wrap_dim("stack", dim, first.batch_dims() + 1);
  check_members("stack", members, /*free_dim=*/std::nullopt);
  std::vector<int64_t> batch_size = first.batch_size();
  batch_size.insert(batch_size.begin() + dim, static_cast<int64_t>(members.size()));
  return join(members, std::move(batch_size), [&](const Tensors& leaves) { return at::stack(leaves, dim); });
}

TensorDict cat(const std::vector<TensorDict>& members, int64_t dim) {
  TORCH_CHECK_VALUE(!members.empty(), "cat: no trees, expected at least one");
  std::vector<int64_t> batch_size = members.front().batch_size();
  dim = wrap_dim("cat", dim, members.front().batch_dims());
  check_members("cat", members, /*free_dim=*/dim);
  batch_size[dim] = 0;
  for (const TensorDict& member : members) batch_size[dim] += member.batch_size()[dim];
  return join(members, std::move(batch_size), [&](const Tensors& leaves) { return at::cat(leaves, dim); });
}

std::vector<TensorDict> unbind(const TensorDict& tree, int64_t dim) {
  dim = wrap_dim("unbind", dim, tree.batch_dims());
  std::vector<TensorDict> parts = take_apart(tree, [&](const at::Tensor& value) { return value.unbind(dim); });
  for (TensorDict& part : parts) part.unlock_();
  return parts;
}

std::vector<TensorDict> split(const TensorDict& tree, int64_t size, int64_t dim) {
  dim = wrap_dim("split", dim, tree.batch_dims());
  TORCH_CHECK_VALUE(size > 0, "split(size=", size, "): expected a positive size");
  return take_apart(tree, [&](const at::Tensor& value) { return value.split(size, dim); });
}

std::vector<TensorDict> split(const TensorDict& tree, at::IntArrayRef sizes, int64_t dim) {
  dim = wrap_dim("split", dim, tree.batch_dims());
  for (const int64_t size : sizes) TORCH_CHECK_VALUE(size >= 0, "split: sizes ", sizes, ", expected none below 0");
  const int64_t sum = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  TORCH_CHECK_VALUE(sum == tree.batch_size()[dim], "split: sizes ", sizes, " sum to ", sum, ", expected ",
                    tree.batch_size()[dim], ", the size of batch dim ", dim);
  return take_apart(tree, [&](const at::Tensor& value) { return value.split_with_sizes(sizes, dim); });
}

std::vector<TensorDict> split(const TensorDict& tree, std::initializer_list<int64_t> sizes, int64_t dim) {
  return split(tree, at::IntArrayRef(sizes), dim);
}

std::vector<TensorDict> chunk(const TensorDict& tree, int64_t chunks, int64_t dim) {
  dim = wrap_dim("chunk", dim, tree.batch_dims());
  TORCH_CHECK_VALUE(chunks > 0, "chunk(chunks=", chunks, "): expected a positive number");
  return take_apart(tree, [&](const at::Tensor& value) { return value.chunk(chunks, dim); });
}

std::vector<TensorDict> tensor_split(const TensorDict& tree, int64_t sections, int64_t dim) {
  dim = wrap_dim("tensor_split", dim, tree.batch_dims());
  TORCH_CHECK_VALUE(sections > 0, "tensor_split(sections=", sections, "): expected a positive number");
  return take_apart(tree, [&](const at::Tensor& value) { return value.tensor_split(sections, dim); });
}

std::vector<TensorDict> tensor_split(const TensorDict& tree, at::IntArrayRef indices, int64_t dim) {
  dim = wrap_dim("tensor_split", dim, tree.batch_dims());
  return take_apart(tree, [&](const at::Tensor& value) { return value.tensor_split(indices, dim); });
}

std::vector<TensorDict> tensor_split(const TensorDict& tree, std::initializer_list<int64_t> indices, int64_t dim) {
  return tensor_split(tree, at::IntArrayRef(indices), dim);
}

}  // namespace graft
