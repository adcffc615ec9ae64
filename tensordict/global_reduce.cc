#include "tensordict/global_reduce.h"

#include <ATen/Functions.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensordict/internal/dtypes.h"
#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

using internal::check_floating_or_complex;
using internal::Tensors;

/// Reduces the last dim.
using Reduction = absl::FunctionRef<at::Tensor(const at::Tensor&)>;

void check_batch_dims(const char* call, const TensorDict& tree, int64_t batch_dims) {
  TORCH_CHECK_INDEX(batch_dims >= 0, call, ": batch_dims is ", batch_dims, ", expected no negative number");
  if (batch_dims == 0) return;
  const auto dims = static_cast<std::size_t>(batch_dims);
  TORCH_CHECK_INDEX(!tree.empty() || dims <= tree.batch_size().size(), call, ": the empty tree of batch size ",
                    at::IntArrayRef(tree.batch_size()), " has no ", batch_dims, " batch dims");
  const at::IntArrayRef first = tree.empty() ? at::IntArrayRef() : tree.values()[0].sizes();
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    if (value.sizes().size() < dims) {
      problems << "\n  \"" << path << "\": shape " << value.sizes() << ", expected at least " << batch_dims << " dims";
    } else if (first.size() >= dims && !value.sizes().slice(0, dims).equals(first.slice(0, dims))) {
      problems << "\n  \"" << path << "\": shape " << value.sizes() << ", expected to start with "
               << first.slice(0, dims);
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves do not share ", batch_dims, " batch dims:", text);
}

/// Makes the dims of a leaf beyond the batch dims one.
at::Tensor flat(const at::Tensor& value, int64_t batch_dims) {
  return value.dim() == batch_dims ? value.unsqueeze(-1) : value.flatten(batch_dims);
}

/// Returns what an empty tree is reduced from: no elements.
at::Tensor nothing(const TensorDict& tree, int64_t batch_dims) {
  std::vector<int64_t> sizes = at::IntArrayRef(tree.batch_size()).slice(0, static_cast<std::size_t>(batch_dims)).vec();
  sizes.push_back(0);
  return at::zeros(sizes);
}

/// Puts one value a leaf side by side, in a last dim.
at::Tensor side_by_side(Tensors values) {
  for (at::Tensor& value : values) value = value.to(values[0].device());
  return at::stack(values, -1);
}

/// For functions of which the values of the leaves can be reduced to that of all.
at::Tensor reduce_twice(const char* call, const TensorDict& tree, int64_t batch_dims, Reduction reduction) {
  check_batch_dims(call, tree, batch_dims);
  if (tree.empty()) return reduction(nothing(tree, batch_dims));
  const auto of_leaf = [&](const at::Tensor& value) { return reduction(flat(value, batch_dims)); };
  return reduction(side_by_side(internal::for_each_leaf(of_leaf, tree.values())));
}

/// For the others: all elements in one tensor, the batch dims before them.
at::Tensor all_elements(const char* call, const TensorDict& tree, int64_t batch_dims) {
  check_floating_or_complex(call, tree);
  check_batch_dims(call, tree, batch_dims);
  if (tree.empty()) return nothing(tree, batch_dims);
  const at::Device device = tree.values()[0].device();
  const auto of_leaf = [&](const at::Tensor& value) { return flat(value, batch_dims).to(device); };
  return at::cat(internal::for_each_leaf(of_leaf, tree.values()), -1);
}

/// Returns the dtype that those of all leaves promote to.
at::ScalarType common_dtype(const TensorDict& tree) {
  if (tree.empty()) return c10::get_default_dtype_as_scalartype();
  at::ScalarType dtype = tree.values()[0].scalar_type();
  for (const at::Tensor& value : tree.values()) dtype = c10::promoteTypes(dtype, value.scalar_type());
  return dtype;
}

int64_t elements(const TensorDict& tree, int64_t batch_dims) {
  int64_t count = 0;
  for (const at::Tensor& value : tree.values()) {
    count += c10::multiply_integers(value.sizes().slice(static_cast<std::size_t>(batch_dims)));
  }
  return count;
}

/// Extremes are those of the leaves that have elements.
at::Tensor extreme(const char* call, const TensorDict& tree, int64_t batch_dims, Reduction reduction) {
  check_batch_dims(call, tree, batch_dims);
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const at::IntArrayRef beyond = tree.values()[i].sizes().slice(static_cast<std::size_t>(batch_dims));
    if (c10::multiply_integers(beyond) > 0) positions.push_back(i);
  }
  TORCH_CHECK_VALUE(!positions.empty(), call, ": the tree has no elements");
  if (positions.size() == tree.size()) return reduce_twice(call, tree, batch_dims, reduction);
  return reduce_twice(call, tree.subset(positions), batch_dims, reduction);
}

void check_same_shapes(const char* call, const TensorDict& left, const Tensors& right) {
  std::ostringstream problems;
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (left.values()[i].sizes() == right[i].sizes()) continue;
    problems << "\n  \"" << left.keys()->path(i) << "\": shape " << right[i].sizes() << ", expected "
             << left.values()[i].sizes();
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves of the second tree do not fit the first:", text);
}

at::Tensor dot_of_leaves(const at::Tensor& left, const at::Tensor& right, int64_t batch_dims) {
  const bool is_one_product = batch_dims == 0 && left.is_floating_point() && left.dtype() == right.dtype();
  return is_one_product ? at::dot(left.flatten(), right.flatten()) : flat(left * right, batch_dims).sum(-1);
}

}  // namespace

at::Tensor global_sum(const TensorDict& tree, int64_t batch_dims) {
  return reduce_twice("global_sum", tree, batch_dims, [](const at::Tensor& x) { return x.sum(-1); });
}

at::Tensor global_prod(const TensorDict& tree, int64_t batch_dims) {
  return reduce_twice("global_prod", tree, batch_dims, [](const at::Tensor& x) { return x.prod(-1); });
}

at::Tensor global_all(const TensorDict& tree, int64_t batch_dims) {
  return reduce_twice("global_all", tree, batch_dims, [](const at::Tensor& x) { return x.to(at::kBool).all(-1); });
}

at::Tensor global_any(const TensorDict& tree, int64_t batch_dims) {
  return reduce_twice("global_any", tree, batch_dims, [](const at::Tensor& x) { return x.to(at::kBool).any(-1); });
}

at::Tensor global_amax(const TensorDict& tree, int64_t batch_dims) {
  return extreme("global_amax", tree, batch_dims, [](const at::Tensor& x) { return x.amax(-1); });
}

at::Tensor global_amin(const TensorDict& tree, int64_t batch_dims) {
  return extreme("global_amin", tree, batch_dims, [](const at::Tensor& x) { return x.amin(-1); });
}

at::Tensor global_mean(const TensorDict& tree, int64_t batch_dims) {
  check_floating_or_complex("global_mean", tree);
  // The sum of many small floats can be beyond their range when their mean is not.
  const auto sum = [](const at::Tensor& x) { return x.sum(-1, /*keepdim=*/false, at::toOpMathType(x.scalar_type())); };
  const at::Tensor mean = reduce_twice("global_mean", tree, batch_dims, sum) / elements(tree, batch_dims);
  return mean.to(common_dtype(tree));
}

at::Tensor global_std(const TensorDict& tree, int64_t batch_dims, int64_t correction) {
  return at::std(all_elements("global_std", tree, batch_dims), {-1}, std::optional<at::Scalar>(correction));
}

at::Tensor global_var(const TensorDict& tree, int64_t batch_dims, int64_t correction) {
  return at::var(all_elements("global_var", tree, batch_dims), {-1}, std::optional<at::Scalar>(correction));
}

at::Tensor global_norm(const TensorDict& tree, int64_t batch_dims) {
  check_floating_or_complex("global_norm", tree);
  const auto norm = [](const at::Tensor& x) { return at::linalg_vector_norm(x, 2, {-1}); };
  if (batch_dims != 0 || tree.empty() || internal::any_transformed(tree.values())) {
    return reduce_twice("global_norm", tree, batch_dims, norm);
  }
  return norm(side_by_side(at::_foreach_norm(tree.values())));
}

at::Tensor dot(const TensorDict& left, const TensorDict& right, int64_t batch_dims) {
  const Tensors right_values = aligned_values("dot", left, right);
  check_same_shapes("dot", left, right_values);
  check_batch_dims("dot", left, batch_dims);
  if (left.empty()) return nothing(left, batch_dims).sum(-1);
  const auto of_leaf = [&](const at::Tensor& a, const at::Tensor& b) { return dot_of_leaves(a, b, batch_dims); };
  return side_by_side(internal::for_each_leaf(of_leaf, left.values(), right_values)).sum(-1);
}

}  // namespace graft
