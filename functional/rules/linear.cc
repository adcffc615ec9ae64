// Kernels that make linear maps fast under transforms.
//
// LibTorch takes `linear` apart into a product and a sum before any level sees it, and maps the product by one bmm
// whatever is mapped. Here `linear` stays one addmm, which vmap turns into one kernel:
//
// | mapped | kernel |
// |---|---|
// | input and weight | one baddbmm |
// | weight alone (an ensemble on one batch) | one product with the rows of all weights |
// | input alone | one product with the rows of all samples |
// | both, and one row each (the gradient of one sample) | a multiplication that broadcasts, which is faster than bmm |
//
// See [Kernels on the front key] in losses.cc; mm and addmm are on the key of vmap, for gradients are made of them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/PlumbingHelper.h>
#include <torch/library.h>

#include <tuple>
#include <vector>

#include "functional/rules/optional_tensor.h"

namespace graft {
namespace {

namespace functorch = at::functorch;
using at::Scalar;
using at::Tensor;
using internal::given;
using internal::OptionalTensor;

// --- linear

Tensor linear_rule(const Tensor& input, const Tensor& weight, const OptionalTensor& bias) {
  if (!given(bias)) return input.matmul(weight.t());
  if (input.dim() == 0 || weight.dim() != 2 || bias->dim() != 1) return input.matmul(weight.t()) + *bias;
  if (input.dim() == 1) return at::addmm(*bias, input.unsqueeze(0), weight.t()).squeeze(0);
  if (input.dim() == 2) return at::addmm(*bias, input, weight.t());
  auto shape = input.sizes().vec();
  shape.back() = weight.size(0);
  return at::addmm(*bias, input.flatten(0, -2), weight.t()).reshape(shape);
}

// --- Products under vmap

/// An argument at the level of the vmap that runs.
struct Argument {
  Tensor value;  ///< its mapped dim is the first
  bool is_mapped;

  int64_t dim() const { return value.dim() - (is_mapped ? 1 : 0); }
  int64_t size(int64_t dim) const { return value.size(is_mapped ? dim + 1 : dim); }
};

int64_t current_level() { return functorch::maybeCurrentDynamicLayer()->layerId(); }

Argument argument(const Tensor& tensor, int64_t level) {
  const auto [value, dim] = functorch::unwrapTensorAtLevel(tensor, level);
  return dim ? Argument{value.movedim(*dim, 0), true} : Argument{value, false};
}

/// Returns the columns of all samples of `matrix` side by side, or nothing if that takes a copy.
OptionalTensor side_by_side(const Argument& matrix) {
  const Tensor rows_first = matrix.value.movedim(0, 1);
  if (rows_first.stride(1) != rows_first.size(2) * rows_first.stride(2)) return std::nullopt;
  return rows_first.flatten(1, 2);
}

/// Splits the columns that belong to the samples: (row, sample and column) -> (row, sample, column).
Tensor split_columns(const Tensor& product, const Argument& matrix) {
  return product.unflatten(1, {matrix.value.size(0), matrix.size(1)});
}

Tensor mm_rule(const Tensor& self, const Tensor& mat2) {
  const int64_t level = current_level();
  const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
  const Argument left = argument(self, level), right = argument(mat2, level);
  if (!left.is_mapped && !right.is_mapped) return at::mm(left.value, right.value);
  TORCH_CHECK(left.dim() == 2, "self must be a matrix");
  TORCH_CHECK(right.dim() == 2, "mat2 must be a matrix");
  const auto mapped = [&](const Tensor& result, int64_t dim) { return functorch::makeBatched(result, dim, level); };
  if (left.is_mapped && right.is_mapped && left.size(1) == 1 && right.size(0) == 1) {
    return mapped(left.value * right.value, 0);
  }
  const OptionalTensor all_columns = left.is_mapped ? std::nullopt : side_by_side(right);
  if (all_columns) return mapped(split_columns(left.value.mm(*all_columns), right), 1);
  return mapped(left.value.matmul(right.value), 0);
}

/// Returns the row that is added to each row of the product, with a mapped dim if there are samples of it.
Tensor addmm_of_rows(const Argument& row, const Argument& left, const Argument& right, const Scalar& beta,
                     const Scalar& alpha, int64_t level) {
  const auto mapped = [&](const Tensor& result, int64_t dim) { return functorch::makeBatched(result, dim, level); };
  if (left.is_mapped && right.is_mapped) {
    const Tensor added = row.is_mapped ? row.value.unsqueeze(1) : row.value;
    return mapped(at::baddbmm(added, left.value, right.value, beta, alpha), 0);
  }
  if (left.is_mapped) {
    const Tensor product = at::addmm(row.value, left.value.flatten(0, 1), right.value, beta, alpha);
    return mapped(product.unflatten(0, {left.value.size(0), left.size(0)}), 0);
  }
  const int64_t samples = right.value.size(0);
  const Tensor rows = row.is_mapped ? row.value : row.value.expand({samples, row.size(0)});
  return mapped(split_columns(at::addmm(rows.flatten(), left.value, *side_by_side(right), beta, alpha), right), 1);
}

/// Whether addmm_of_rows has a kernel for these arguments.
bool is_fused(const Argument& row, const Argument& left, const Argument& right) {
  if (row.dim() != 1 || left.dim() != 2 || right.dim() != 2 || row.size(0) != right.size(1)) return false;
  if (left.is_mapped && right.is_mapped) return true;
  if (left.is_mapped) return !row.is_mapped;
  return right.is_mapped && side_by_side(right).has_value();
}

Tensor addmm_rule(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  const int64_t level = current_level();
  {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
    const Argument row = argument(self, level), left = argument(mat1, level), right = argument(mat2, level);
    if (is_fused(row, left, right)) return addmm_of_rows(row, left, right, beta, alpha, level);
  }
  return at::add(at::mul(self, beta), at::mm(mat1, mat2), alpha);
}

/// Drops warnings, as long as it lives.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}

 private:
  c10::WarningUtils::WarningHandlerGuard guard_{this};
};

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  const NoWarnings no_warnings;  // LibTorch has kernels here, and says that they are replaced.
  library.impl("linear", linear_rule);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, library) {
  const NoWarnings no_warnings;
  library.impl("mm", mm_rule);
  library.impl("addmm", addmm_rule);
}

}  // namespace graft
