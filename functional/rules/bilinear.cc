// Kernels for bilinear and _trilinear, which LibTorch maps by a loop. See [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include "functional/rules/optional_tensor.h"

namespace graft {
namespace {

using at::Tensor;
using internal::given;
using internal::OptionalTensor;

/// LibTorch's own checks: without them the product would broadcast.
void check_bilinear(const Tensor& left, const Tensor& right, const Tensor& weight, const OptionalTensor& bias) {
  TORCH_CHECK(left.dim() > 0 && left.dim() == right.dim(), "bilinear(): input dimensions do not match: got ",
              left.dim(), " and ", right.dim());
  for (int64_t dim = 0; dim + 1 < left.dim(); ++dim) {
    TORCH_CHECK(left.size(dim) == right.size(dim), "bilinear(): input batch dimensions do not match at dim ", dim,
                ": got ", left.size(dim), " and ", right.size(dim));
  }
  TORCH_CHECK(weight.dim() == 3, "bilinear(): expected a weight of 3 dims, got shape ", weight.sizes());
  TORCH_CHECK(left.size(-1) == weight.size(1), "bilinear(): input1 size does not match weight size: got ",
              left.size(-1), " but expected ", weight.size(1));
  TORCH_CHECK(right.size(-1) == weight.size(2), "bilinear(): input2 size does not match weight size: got ",
              right.size(-1), " but expected ", weight.size(2));
  TORCH_CHECK(!given(bias) || bias->size(0) == weight.size(0), "bilinear(): bias size does not match weight size: got ",
              bias->size(0), " but expected ", weight.size(0));
}

/// A linear map of all products of an element of `left` and one of `right`.
Tensor bilinear_rule(const Tensor& left, const Tensor& right, const Tensor& weight, const OptionalTensor& bias) {
  check_bilinear(left, right, weight, bias);
  const Tensor products = (left.unsqueeze(-1) * right.unsqueeze(-2)).flatten(-2);
  return at::linear(products, weight.flatten(1), bias);
}

Tensor with_dims(Tensor tensor, at::IntArrayRef dims) {
  for (const int64_t dim : dims) tensor = tensor.unsqueeze(dim);
  return tensor;
}

Tensor trilinear_rule(const Tensor& first, const Tensor& second, const Tensor& third, at::IntArrayRef new_dims_of_first,
                      at::IntArrayRef new_dims_of_second, at::IntArrayRef new_dims_of_third, at::IntArrayRef summed,
                      int64_t /*unroll_dim*/) {
  const Tensor product =
      with_dims(first, new_dims_of_first) * with_dims(second, new_dims_of_second) * with_dims(third, new_dims_of_third);
  return summed.empty() ? product : product.sum(summed);  // A sum over no dims is one over all.
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("bilinear", bilinear_rule);
  library.impl("_trilinear", trilinear_rule);
}

}  // namespace graft
