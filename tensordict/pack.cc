#include "tensordict/pack.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <sstream>
#include <utility>
#include <vector>

#include "tensordict/internal/batch_dims.h"

namespace graft {
namespace {

using internal::joined;
using internal::own_sizes;

void check_one_kind(const TensorDict& tree) {
  std::ostringstream problems;
  const at::Tensor& first = tree.values().front();
  for (const auto& [path, value] : tree.leaves()) {
    if (value.dtype() == first.dtype() && value.device() == first.device()) continue;
    problems << "\n  \"" << path << "\": " << value.dtype() << " on " << value.device() << ", expected "
             << first.dtype() << " on " << first.device() << " as \"" << tree.keys()->path(0) << '"';
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "pack: leaves of several kinds do not go into one tensor:", text);
}

/// Returns a view, even where the rows are not next to each other, which view refuses and reshape copies.
at::Tensor as_leaf(const at::Tensor& rows, at::IntArrayRef rest) {
  return rest.empty() ? rows.squeeze(-1) : rows.unflatten(-1, rest);
}

}  // namespace

at::Tensor pack(const TensorDict& tree) {
  if (tree.empty()) return at::empty(joined(tree.batch_size(), {0}));
  check_one_kind(tree);
  std::vector<at::Tensor> rows;
  rows.reserve(tree.size());
  for (const at::Tensor& leaf : tree.values()) {
    rows.push_back(
        leaf.reshape(joined(tree.batch_size(), {c10::multiply_integers(own_sizes(leaf, tree.batch_dims()))})));
  }
  return at::cat(rows, -1);
}

TensorDict unpack(const at::Tensor& flat, const TensorDict& like) {
  TORCH_CHECK_VALUE(flat.dim() > 0, "unpack: a tensor without dims, expected [..., n]");
  std::vector<int64_t> lengths;
  int64_t length = 0;
  for (const at::Tensor& leaf : like.values()) {
    lengths.push_back(c10::multiply_integers(own_sizes(leaf, like.batch_dims())));
    length += lengths.back();
  }
  TORCH_CHECK_VALUE(flat.size(-1) == length, "unpack: a tensor of shape ", flat.sizes(), ", expected ", length,
                    " numbers in its last dim, as many as the ", like.size(),
                    " leaves of the tree have for one sample");
  const at::IntArrayRef batch_size = flat.sizes().slice(0, flat.dim() - 1);
  std::vector<at::Tensor> leaves = flat.split_with_sizes(lengths, -1);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    leaves[i] = as_leaf(leaves[i], own_sizes(like.values()[i], like.batch_dims()));
  }
  return like.with_values(std::move(leaves), batch_size.vec()).unlocked();
}

}  // namespace graft
