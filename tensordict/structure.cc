#include "tensordict/structure.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <sstream>

#include "absl/functional/function_ref.h"

namespace graft {
namespace {

const char* flag_name(bool requires_grad) { return requires_grad ? "true" : "false"; }

/// Returns the leaf at `path`, or nullptr. It is looked for at `position` first: most trees have one order.
const at::Tensor* find_near(const TensorDict& tree, const std::string& path, std::size_t position) {
  if (position < tree.size()) {
    const std::string& there = tree.keys()->path(position);
    if (&there == &path || there == path) return &tree.values()[position];
  }
  return tree.find(path);
}

void describe_keys(const TensorDict& got, const TensorDict& expected, std::ostream& lines) {
  if (same_paths(*got.keys(), *expected.keys())) return;
  for (const auto& [path, value] : expected.leaves()) {
    if (!got.find(path)) lines << "\n  \"" << path << "\": missing";
  }
  for (const auto& [path, value] : got.leaves()) {
    if (!expected.find(path)) lines << "\n  \"" << path << "\": unexpected";
  }
}

bool same_shape(at::IntArrayRef left, at::IntArrayRef right, std::optional<int64_t> free_dim) {
  if (left.size() != right.size()) return false;
  for (std::size_t dim = 0; dim < left.size(); ++dim) {
    if (left[dim] != right[dim] && static_cast<int64_t>(dim) != free_dim) return false;
  }
  return true;
}

void describe_leaf(const std::string& path, const at::Tensor& got, const at::Tensor& expected,
                   const MismatchOptions& options, std::ostream& lines) {
  const auto differs = [&](const char* what, const auto& was, const auto& should_be) {
    lines << "\n  \"" << path << "\": " << what << ' ' << was << ", expected " << should_be;
  };
  if (options.shapes && !same_shape(got.sizes(), expected.sizes(), options.free_dim)) {
    differs("shape", got.sizes(), expected.sizes());
  }
  if (options.dtypes && got.dtype() != expected.dtype()) differs("dtype", got.dtype(), expected.dtype());
  if (options.devices && got.device() != expected.device()) differs("device", got.device(), expected.device());
  if (options.requires_grad && got.requires_grad() != expected.requires_grad()) {
    differs("requires_grad", flag_name(got.requires_grad()), flag_name(expected.requires_grad()));
  }
}

using Comparison = absl::FunctionRef<bool(const at::Tensor&, const at::Tensor&)>;

bool all_leaves(const TensorDict& left, const TensorDict& right, Comparison same_values) {
  const bool same_batch = left.batch_size() == right.batch_size() && left.nested_sizes() == right.nested_sizes();
  if (!same_batch || !describe_mismatch(left, right).empty()) return false;
  const std::vector<at::Tensor> right_values = aligned_values("equal", left, right);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!same_values(left.values()[i], right_values[i])) return false;
  }
  return true;
}

}  // namespace

std::string describe_mismatch(const TensorDict& got, const TensorDict& expected, const MismatchOptions& options) {
  std::ostringstream lines;
  describe_keys(got, expected, lines);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string& path = got.keys()->path(i);
    const at::Tensor* other = find_near(expected, path, i);
    if (other != nullptr) describe_leaf(path, got.values()[i], *other, options, lines);
  }
  return lines.str();
}

void check_same_keys(std::string_view call, const TensorDict& left, const TensorDict& right) {
  std::ostringstream lines;
  describe_keys(right, left, lines);
  const std::string text = lines.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": the second tree does not have the keys of the first:", text);
}

std::vector<at::Tensor> aligned_values(std::string_view call, const TensorDict& reference, const TensorDict& tree) {
  if (reference.keys() == tree.keys()) return tree.values();
  check_same_keys(call, reference, tree);
  std::vector<at::Tensor> values;
  values.reserve(tree.size());
  for (std::size_t i = 0; i < reference.size(); ++i) {
    values.push_back(*find_near(tree, reference.keys()->path(i), i));
  }
  return values;
}

bool equal(const TensorDict& left, const TensorDict& right) {
  return all_leaves(left, right, [](const at::Tensor& a, const at::Tensor& b) { return at::equal(a, b); });
}

bool allclose(const TensorDict& left, const TensorDict& right, double rtol, double atol) {
  return all_leaves(left, right,
                    [&](const at::Tensor& a, const at::Tensor& b) { return at::allclose(a, b, rtol, atol); });
}

}  // namespace graft
