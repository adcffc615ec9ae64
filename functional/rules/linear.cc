// Kernels that make linear maps fast under transforms.
//
// LibTorch takes `linear` apart into a product and a sum before any level sees it, and maps the product by one bmm
// whatever is mapped. Here `linear` stays one addmm, which vmap turns into one kernel:
//
// | mapped | kernel |
// |---|---|
// | the weight (an ensemble) | one baddbmm; an input that all share is expanded, not copied |
// | the input alone | one product with the rows of all samples |
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

constexpr int64_t kFewColumns = 8;

int64_t current_level() { return functorch::maybeCurrentDynamicLayer()->layerId(); }

Argument argument(const Tensor& tensor, int64_t level) {
  const auto [value, dim] = functorch::unwrapTensorAtLevel(tensor, level);
  if (!dim) return {value, false};
  return {*dim == 0 ? value : value.movedim(*dim, 0), true};  // autograd records every movedim
}

/// Returns the matrices of all samples, which are one matrix if it is not mapped.
Tensor of_all_samples(const Argument& matrix, int64_t samples) {
  return matrix.is_mapped ? matrix.value : matrix.value.expand({samples, matrix.size(0), matrix.size(1)});
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
  // matmul makes one product of all columns, which pays if bmm's own products would be narrow: it copies for a
  // gradient.
  if (left.is_mapped || right.size(1) < kFewColumns) return mapped(left.value.matmul(right.value), 0);
  return mapped(of_all_samples(left, right.value.size(0)).bmm(right.value), 0);
}

/// Returns `added`, a row or a matrix, to be added to a product of matrices that are mapped in dim 0.
Tensor for_each_sample(const Argument& added) {
  return added.is_mapped && added.dim() == 1 ? added.value.unsqueeze(1) : added.value;
}

/// Returns the addmm by one kernel, or nothing if there is none for these arguments.
OptionalTensor fused_addmm(const Argument& added, const Argument& left, const Argument& right, const Scalar& beta,
                           const Scalar& alpha, int64_t level) {
  const auto mapped = [&](const Tensor& result, int64_t dim) { return functorch::makeBatched(result, dim, level); };
  if (left.dim() != 2 || right.dim() != 2) return std::nullopt;
  const bool is_row = added.dim() == 1 && added.size(0) == right.size(1);
  const bool is_whole = added.dim() == 2 && added.size(0) == left.size(0) && added.size(1) == right.size(1);
  if (!is_row && !is_whole) return std::nullopt;
  if (right.is_mapped) {
    const Tensor matrices = of_all_samples(left, right.value.size(0));
    return mapped(at::baddbmm(for_each_sample(added), matrices, right.value, beta, alpha), 0);
  }
  // One product with the rows of all samples, to which one row for all is added, or each sample's own matrix.
  if (!left.is_mapped || is_row == added.is_mapped) return std::nullopt;
  const Tensor rows = added.is_mapped ? added.value.flatten(0, 1) : added.value;
  const Tensor product = at::addmm(rows, left.value.flatten(0, 1), right.value, beta, alpha);
  return mapped(product.unflatten(0, {left.value.size(0), left.size(0)}), 0);
}

Tensor addmm_rule(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha) {
  const int64_t level = current_level();
  {
    const c10::impl::ExcludeDispatchKeyGuard below(c10::DispatchKey::FuncTorchBatched);
    const Argument added = argument(self, level), left = argument(mat1, level), right = argument(mat2, level);
    if (const OptionalTensor result = fused_addmm(added, left, right, beta, alpha, level)) return *result;
  }
  const Tensor scaled = beta.equal(1) ? self : at::mul(self, beta);
  return at::add(scaled, at::mm(mat1, mat2), alpha);
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
