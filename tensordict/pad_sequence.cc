#include "tensordict/pad_sequence.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tensordict/internal/batch_dims.h"
#include "tensordict/internal/members.h"
#include "tensordict/join.h"
#include "tensordict/shape.h"

namespace graft {
namespace {

/// Where a tree of length `length` lies among `longest` elements.
int64_t start_of(int64_t length, int64_t longest, PaddingSide side) {
  return side == PaddingSide::kLeft ? longest - length : 0;
}

TensorDict padded(const TensorDict& tree, int64_t dim, int64_t longest, const PadSequenceOptions& options) {
  const int64_t length = tree.batch_size()[dim];
  if (length == longest) return tree;
  const int64_t start = start_of(length, longest, options.padding_side);
  std::vector<int64_t> pad_size(2 * dim);
  pad_size.push_back(start);
  pad_size.push_back(longest - length - start);
  return pad(tree, pad_size, options.padding_value);
}

}  // namespace

TensorDict pad_sequence(const std::vector<TensorDict>& trees, const PadSequenceOptions& options) {
  TORCH_CHECK_VALUE(!trees.empty(), "pad_sequence: no trees, expected at least one");
  const TensorDict& first = trees.front();
  const int64_t dim = internal::wrap_dim("pad_sequence", options.pad_dim, first.batch_dims());
  internal::check_members("pad_sequence", trees, /*free_dim=*/dim);
  TORCH_CHECK_VALUE(options.mask.empty() || !first.contains(options.mask), "pad_sequence: the trees have \"",
                    options.mask, "\" already, where the mask should go");
  int64_t longest = 0;
  for (const TensorDict& tree : trees) longest = std::max(longest, tree.batch_size()[dim]);
  std::vector<TensorDict> members;
  members.reserve(trees.size());
  for (const TensorDict& tree : trees) members.push_back(padded(tree, dim, longest, options));
  TensorDict result = stack(members);
  if (options.mask.empty()) return result;

  const at::Device device = first.empty() ? at::kCPU : first.values().front().device();
  const at::Tensor mask = at::zeros(result.batch_size(), at::device(device).dtype(at::kBool));
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const int64_t length = trees[i].batch_size()[dim];
    mask[static_cast<int64_t>(i)].narrow(dim, start_of(length, longest, options.padding_side), length).fill_(true);
  }
  result.set(options.mask, mask);
  return result;
}

}  // namespace graft
