// Kernels for convolutions of 2 and 3 dims whose stride, padding or dilation is one number for all dims, as by default:
// LibTorch's rule for vmap counts the dims by the length of the stride, and then adds a mapped bias to the wrong one.
// The kernels write the number once for each dim. See [Kernels on the front key] in losses.cc.
#include <ATen/core/Tensor.h>
#include <ATen/ops/conv2d_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/conv3d_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/conv_transpose2d_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/conv_transpose3d_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include <vector>

#include "functional/rules/optional_tensor.h"

namespace graft {
namespace {

namespace composite = at::compositeimplicitautograd;
using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using internal::OptionalTensor;

/// Returns one value for each of `count` dims.
std::vector<SymInt> for_each_dim(SymIntArrayRef values, std::size_t count, const char* name) {
  if (values.size() == 1) return std::vector<SymInt>(count, values[0]);
  TORCH_CHECK(values.size() == count, "expected ", name, " to be a single integer value or a list of ", count,
              " values to match the convolution dimensions, but got ", name, "=", values);
  return values.vec();
}

using Convolution = Tensor (*)(const Tensor&, const Tensor&, const OptionalTensor&, SymIntArrayRef, SymIntArrayRef,
                               SymIntArrayRef, SymInt);
using PaddedByName = Tensor (*)(const Tensor&, const Tensor&, const OptionalTensor&, SymIntArrayRef, c10::string_view,
                                SymIntArrayRef, SymInt);
using Transposed = Tensor (*)(const Tensor&, const Tensor&, const OptionalTensor&, SymIntArrayRef, SymIntArrayRef,
                              SymIntArrayRef, SymInt, SymIntArrayRef);

template <Convolution kConvolution, std::size_t kDims>
Tensor convolution_rule(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, SymIntArrayRef stride,
                        SymIntArrayRef padding, SymIntArrayRef dilation, SymInt groups) {
  return kConvolution(input, weight, bias, for_each_dim(stride, kDims, "stride"),
                      for_each_dim(padding, kDims, "padding"), for_each_dim(dilation, kDims, "dilation"),
                      std::move(groups));
}

template <PaddedByName kConvolution, std::size_t kDims>
Tensor padded_by_name_rule(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, SymIntArrayRef stride,
                           c10::string_view padding, SymIntArrayRef dilation, SymInt groups) {
  return kConvolution(input, weight, bias, for_each_dim(stride, kDims, "stride"), padding,
                      for_each_dim(dilation, kDims, "dilation"), std::move(groups));
}

template <Transposed kConvolution, std::size_t kDims>
Tensor transposed_rule(const Tensor& input, const Tensor& weight, const OptionalTensor& bias, SymIntArrayRef stride,
                       SymIntArrayRef padding, SymIntArrayRef output_padding, SymInt groups, SymIntArrayRef dilation) {
  return kConvolution(input, weight, bias, for_each_dim(stride, kDims, "stride"),
                      for_each_dim(padding, kDims, "padding"), for_each_dim(output_padding, kDims, "output_padding"),
                      std::move(groups), for_each_dim(dilation, kDims, "dilation"));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("conv2d", convolution_rule<composite::conv2d_symint, 2>);
  library.impl("conv3d", convolution_rule<composite::conv3d_symint, 3>);
  library.impl("conv2d.padding", padded_by_name_rule<composite::conv2d_symint, 2>);
  library.impl("conv3d.padding", padded_by_name_rule<composite::conv3d_symint, 3>);
  library.impl("conv_transpose2d.input", transposed_rule<composite::conv_transpose2d_symint, 2>);
  library.impl("conv_transpose3d.input", transposed_rule<composite::conv_transpose3d_symint, 3>);
}

}  // namespace graft
