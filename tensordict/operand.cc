#include "tensordict/operand.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <string>

#include "tensordict/internal/write_check.h"
#include "tensordict/structure.h"

namespace graft::internal {
namespace {

using Tensors = std::vector<at::Tensor>;
using Operands = std::initializer_list<const Operand*>;

at::IntArrayRef batch_sizes(const Operand& operand) {
  if (operand.tree()) return operand.tree()->batch_size();
  if (operand.tensor()) return operand.tensor()->sizes();
  return {};
}

std::vector<int64_t> broadcast_sizes(const char* call, const TensorDict& tree, Operands operands) {
  std::vector<int64_t> sizes = tree.batch_size();
  for (const Operand* operand : operands) {
    const at::IntArrayRef other = batch_sizes(*operand);
    if (other.equals(sizes)) continue;
    TORCH_CHECK_VALUE(at::are_expandable(sizes, other), call, ": ",
                      operand->tree() ? "a tree of batch size " : "a tensor of shape ", other,
                      " does not broadcast to the batch size ", at::IntArrayRef(sizes));
    sizes = at::infer_size(sizes, other);
  }
  return sizes;
}

/// Makes a number one tensor a leaf, of the dtype that a result with it has.
Tensors values_of(const TensorDict& tree, const at::Scalar& number) {
  Tensors values;
  values.reserve(tree.size());
  for (const at::Tensor& leaf : tree.values()) {
    values.push_back(at::scalar_tensor(number, at::result_type(leaf, number)));
  }
  return values;
}

Tensors values_of(const char* call, const TensorDict& tree, const Operand& operand) {
  if (operand.tree()) return aligned_values(call, tree, *operand.tree());
  return operand.tensor() ? Tensors(tree.size(), *operand.tensor()) : values_of(tree, *operand.number());
}

/// A tensor without dims, or a number, meets every leaf as it is.
bool is_single(const Operand& operand) { return !operand.tree() && batch_sizes(operand).empty(); }

at::Tensor with_ones(const at::Tensor& value, int64_t position, int64_t count) {
  std::vector<int64_t> sizes = value.sizes().vec();
  sizes.insert(sizes.begin() + position, static_cast<std::size_t>(count), 1);
  return value.reshape(sizes);
}

/// Returns how many dims beyond the batch dims are batch dims of the part that `path` lies in, on all sides.
int64_t common_nested_dims(const std::vector<const Operand*>& operands, const std::string& path) {
  std::size_t dims = std::numeric_limits<std::size_t>::max();
  for (const Operand* operand : operands) {
    dims = std::min(dims, operand->tree() ? operand->tree()->nested_sizes().at(path).size() : 0);
  }
  return static_cast<int64_t>(dims);
}

/// Makes the batch dims of one leaf meet, by dims of size 1 behind those of the sides with fewer dims.
void align_leaf(const std::string& path, std::size_t leaf, const std::vector<const Operand*>& operands,
                std::vector<Tensors>& sides) {
  const int64_t nested_dims = common_nested_dims(operands, path);
  const auto batch_dims = [&](std::size_t s) {
    return static_cast<int64_t>(batch_sizes(*operands[s]).size()) + nested_dims;
  };
  int64_t most_beyond = 0;
  for (std::size_t s = 0; s < sides.size(); ++s) {
    most_beyond = std::max(most_beyond, sides[s][leaf].dim() - batch_dims(s));
  }
  for (std::size_t s = 0; s < sides.size(); ++s) {
    const int64_t missing = most_beyond - (sides[s][leaf].dim() - batch_dims(s));
    if (missing > 0 && batch_dims(s) > 0) sides[s][leaf] = with_ones(sides[s][leaf], batch_dims(s), missing);
  }
}

bool same_rank(const std::vector<Tensors>& sides, std::size_t leaf) {
  return std::all_of(sides.begin(), sides.end(),
                     [&](const Tensors& side) { return side[leaf].dim() == sides[0][leaf].dim(); });
}

void align_leaves(const std::vector<const Operand*>& operands, std::vector<Tensors>& sides) {
  const TensorDict& tree = *operands[0]->tree();
  const bool same_batch_dims = std::all_of(operands.begin(), operands.end(), [&](const Operand* operand) {
    return batch_sizes(*operand).size() == tree.batch_size().size();
  });
  for (std::size_t i = 0; i < tree.size(); ++i) {
    if (!same_batch_dims || !same_rank(sides, i)) align_leaf(tree.keys()->path(i), i, operands, sides);
  }
}

bool takes_factor(at::ScalarType dtype, const at::Scalar& factor) {
  if (factor.isComplex()) return c10::isComplexType(dtype);
  return !factor.isFloatingPoint() || !c10::isIntegralType(dtype, /*includeBool=*/true);
}

}  // namespace

Aligned align(const char* call, const TensorDict& tree, Operands operands) {
  std::vector<int64_t> batch_size = broadcast_sizes(call, tree, operands);
  const Operand left(tree);
  std::vector<const Operand*> with_dims{&left};
  std::vector<Tensors> sides{tree.values()};
  for (const Operand* operand : operands) {
    if (is_single(*operand)) continue;
    with_dims.push_back(operand);
    sides.push_back(values_of(call, tree, *operand));
  }
  align_leaves(with_dims, sides);
  auto side = sides.begin();
  for (const Operand* operand : operands) {
    ++side;
    if (is_single(*operand)) side = sides.insert(side, values_of(call, tree, *operand));
  }
  return {std::move(sides), std::move(batch_size)};
}

Aligned align_in_place(const char* call, const TensorDict& tree, Operands operands) {
  Aligned aligned = align(call, tree, operands);
  WriteProblems problems;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const at::Tensor& target = tree.values()[i];
    if (aligned.sides[0][i].dim() == target.dim()) continue;
    for (std::size_t s = 1; s < aligned.sides.size(); ++s) {
      problems.add(tree.keys()->path(i)) << "shape " << aligned.sides[s][i].sizes()
                                         << ", expected one that broadcasts to " << target.sizes();
    }
  }
  problems.throw_if_any(call);
  return {std::move(aligned.sides), tree.batch_size()};
}

void check_factor(const char* call, const TensorDict& tree, const std::vector<Tensors>& sides,
                  const at::Scalar& factor) {
  WriteProblems problems;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    at::ScalarType dtype = sides[0][i].scalar_type();
    for (const Tensors& side : sides) {
      if (side[i].scalar_type() != dtype) dtype = c10::promoteTypes(dtype, at::result_type(sides[0][i], side[i]));
    }
    if (!takes_factor(dtype, factor)) problems.add(tree.keys()->path(i)) << "dtype " << dtype;
  }
  problems.throw_if_any(c10::str(call, ", with the factor ", factor));
}

}  // namespace graft::internal
