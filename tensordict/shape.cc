#include "tensordict/shape.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <c10/util/Exception.h>

#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

using at::indexing::TensorIndex;

/// Returns `dim` counted from the front, where there are `dims` places for it.
int64_t wrap_dim(std::string_view call, int64_t dim, int64_t dims) {
  TORCH_CHECK_INDEX(-dims <= dim && dim < dims, call, "(dim=", dim, "): the trees have batch dims for ", -dims,
                    " <= dim < ", dims, " only");
  return dim < 0 ? dim + dims : dim;
}

std::vector<int64_t> without(std::vector<int64_t> sizes, std::optional<int64_t> dim) {
  if (dim) sizes.erase(sizes.begin() + *dim);
  return sizes;
}

/// Checks that every member is like the first, but for the size of `free_dim`.
void check_members(std::string_view call, const std::vector<TensorDict>& members, std::optional<int64_t> free_dim) {
  const TensorDict& first = members.front();
  std::ostringstream problems;
  for (std::size_t i = 1; i < members.size(); ++i) {
    std::string mismatch;
    if (members[i].batch_dims() != first.batch_dims() ||
        without(members[i].batch_size(), free_dim) != without(first.batch_size(), free_dim)) {
      mismatch = c10::str("\n  batch size ", members[i].batch_size(), ", expected ", first.batch_size());
    }
    mismatch += describe_mismatch(members[i], first, {.free_dim = free_dim});
    if (!mismatch.empty()) problems << "\nmember " << i << ':' << mismatch;
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these members are not like the first:", text);
}

using Join = absl::FunctionRef<at::Tensor(const std::vector<at::Tensor>&)>;

/// Joins the members' leaves, path by path.
TensorDict join(const std::vector<TensorDict>& members, std::vector<int64_t> batch_size, Join join_leaves) {
  const TensorDict& first = members.front();
  std::vector<std::vector<at::Tensor>> leaves(first.size());
  for (const TensorDict& member : members) {
    std::vector<at::Tensor> values = aligned_values("join", first, member);
    for (std::size_t i = 0; i < values.size(); ++i) leaves[i].push_back(std::move(values[i]));
  }
  std::vector<at::Tensor> joined;
  joined.reserve(leaves.size());
  for (const auto& leaf : leaves) joined.push_back(join_leaves(leaf));
  return first.with_values(std::move(joined), std::move(batch_size)).unlocked();
}

/// Returns how many dims the index takes up.
int64_t dims_taken(const TensorIndex& index) {
  if (index.is_integer() || index.is_slice()) return 1;
  if (!index.is_tensor()) return 0;
  const bool is_mask = index.tensor().scalar_type() == at::kBool || index.tensor().scalar_type() == at::kByte;
  return is_mask ? index.tensor().dim() : 1;
}

/// Puts whole slices in place of the ellipsis, so that it ends with the batch dims.
std::vector<TensorIndex> spell_out(std::initializer_list<TensorIndex> indices, int64_t batch_dims) {
  int64_t taken = 0;
  int64_t ellipses = 0;
  for (const TensorIndex& index : indices) {
    taken += dims_taken(index);
    ellipses += index.is_ellipsis();
  }
  TORCH_CHECK_INDEX(taken <= batch_dims, "index: indices for ", taken, " dims, but the tree has ", batch_dims,
                    " batch dims");
  TORCH_CHECK_INDEX(ellipses <= 1, "index: ", ellipses, " ellipses, expected at most one");
  std::vector<TensorIndex> spelled_out;
  for (const TensorIndex& index : indices) {
    if (index.is_ellipsis()) {
      spelled_out.insert(spelled_out.end(), batch_dims - taken, TensorIndex(at::indexing::Slice()));
    } else {
      spelled_out.push_back(index);
    }
  }
  return spelled_out;
}

}  // namespace

TensorDict stack(const std::vector<TensorDict>& members, int64_t dim) {
  TORCH_CHECK_VALUE(!members.empty(), "stack: no trees, expected at least one");
  const TensorDict& first = members.front();
  dim = wrap_dim("stack", dim, first.batch_dims() + 1);
  check_members("stack", members, /*free_dim=*/std::nullopt);
  std::vector<int64_t> batch_size = first.batch_size();
  batch_size.insert(batch_size.begin() + dim, static_cast<int64_t>(members.size()));
  return join(members, std::move(batch_size), [&](const auto& leaves) { return at::stack(leaves, dim); });
}

TensorDict cat(const std::vector<TensorDict>& members, int64_t dim) {
  TORCH_CHECK_VALUE(!members.empty(), "cat: no trees, expected at least one");
  std::vector<int64_t> batch_size = members.front().batch_size();
  dim = wrap_dim("cat", dim, members.front().batch_dims());
  check_members("cat", members, /*free_dim=*/dim);
  batch_size[dim] = 0;
  for (const TensorDict& member : members) batch_size[dim] += member.batch_size()[dim];
  return join(members, std::move(batch_size), [&](const auto& leaves) { return at::cat(leaves, dim); });
}

std::vector<TensorDict> unbind(const TensorDict& tree, int64_t dim) {
  dim = wrap_dim("unbind", dim, tree.batch_dims());
  std::vector<std::vector<at::Tensor>> values(tree.batch_size()[dim]);
  for (const at::Tensor& value : tree.values()) {
    std::vector<at::Tensor> parts = value.unbind(dim);
    for (std::size_t i = 0; i < parts.size(); ++i) values[i].push_back(std::move(parts[i]));
  }
  std::vector<TensorDict> trees;
  trees.reserve(values.size());
  for (auto& part : values)
    trees.push_back(tree.with_values(std::move(part), without(tree.batch_size(), dim)).unlocked());
  return trees;
}

TensorDict index(const TensorDict& tree, std::initializer_list<TensorIndex> indices) {
  const std::vector<TensorIndex> spelled_out = spell_out(indices, tree.batch_dims());
  // A tensor of the batch size alone shows what becomes of it, also where the tree is empty.
  const at::Tensor sample = tree.empty() ? at::zeros({1}).expand(tree.batch_size()) : tree.values().front();
  const int64_t other_dims = sample.dim() - tree.batch_dims();
  const at::Tensor indexed = sample.index(spelled_out);
  std::vector<at::Tensor> values;
  values.reserve(tree.size());
  for (const at::Tensor& value : tree.values()) values.push_back(value.index(spelled_out));
  auto batch_size = indexed.sizes().slice(0, indexed.dim() - other_dims).vec();
  return tree.with_values(std::move(values), std::move(batch_size)).unlocked();
}

}  // namespace graft
