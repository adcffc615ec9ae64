// Kernels for normalizations. LibTorch maps them well, but their backward operators have no forward-mode derivative,
// which jvp of grad needs. In layer norm and batch norm, the forward-mode derivatives and the second derivatives of the
// backward operators take the saved statistics for constants, so that grad of jvp and grad of grad of grad are silently
// wrong. So the operators are plain formulas under forward mode, the backward operators also where they are
// differentiated, and LibTorch's fast kernels otherwise. See NOTE: [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/batch_norm_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/instance_norm_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include <array>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

#include "functional/rules/front_key.h"
#include "functional/rules/optional_tensor.h"

namespace graft {
namespace {

namespace composite = at::compositeimplicitautograd;

using at::Tensor;
using internal::given;
using internal::OptionalTensor;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;  // of input, weight and bias; undefined if not asked for

// --- Softmax

Tensor softmax_backward_rule(const Tensor& gradient, const Tensor& output, int64_t dim, at::ScalarType input_type) {
  const Tensor weighted = gradient * output;
  return (weighted - output * weighted.sum(dim, /*keepdim=*/true)).to(input_type);
}

Tensor log_softmax_backward_rule(const Tensor& gradient, const Tensor& output, int64_t dim, at::ScalarType input_type) {
  return (gradient - output.exp() * gradient.sum(dim, /*keepdim=*/true)).to(input_type);
}

// --- Layer norm, group norm and batch norm

/// An input brought to mean 0 and variance 1, and what it was multiplied by. Both are computed from the input, because
/// the statistics that the forward operator saved carry no tangent.
struct Normalized {
  Tensor values;
  Tensor scale;
};

Normalized normalized_by(const Tensor& input, const Tensor& mean, const Tensor& scale) {
  return {(input - mean) * scale, scale};
}

/// Returns the gradient of the input, of which the normalized input has `gradient`.
Tensor through_statistics(const Tensor& gradient, const Normalized& normalized, at::IntArrayRef dims) {
  const Tensor along = (gradient * normalized.values).mean(dims, /*keepdim=*/true);
  return normalized.scale * (gradient - gradient.mean(dims, /*keepdim=*/true) - normalized.values * along);
}

/// Normalizes over `dims`. `eps` is not an argument of the backward operators: it is what the saved scale has beyond
/// the variance.
Normalized normalize(const Tensor& input, at::IntArrayRef dims, const Tensor& saved_scale) {
  const Tensor variance = input.var(dims, /*unbiased=*/false, /*keepdim=*/true);
  const Tensor eps = saved_scale.detach().pow(-2) - variance.detach();
  return normalized_by(input, input.mean(dims, /*keepdim=*/true), (variance + eps).rsqrt());
}

/// Normalizes over `dims`.
Normalized normalize(const Tensor& input, at::IntArrayRef dims, double eps) {
  const Tensor variance = input.var(dims, /*unbiased=*/false, /*keepdim=*/true);
  return normalized_by(input, input.mean(dims, /*keepdim=*/true), (variance + eps).rsqrt());
}

/// Returns `values * weight + bias`, for those that are given.
Tensor weighted(Tensor values, const OptionalTensor& weight, const OptionalTensor& bias) {
  if (given(weight)) values = values * *weight;
  return given(bias) ? values + *bias : values;
}

std::vector<int64_t> last_dims(const Tensor& input, std::size_t count) {
  std::vector<int64_t> dims(count);
  std::iota(dims.begin(), dims.end(), input.dim() - static_cast<int64_t>(count));
  return dims;
}

Tensor layer_norm_rule(const Tensor& input, at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                       const OptionalTensor& bias, double eps, bool /*cudnn_enable*/) {
  const auto rank = static_cast<int64_t>(normalized_shape.size());
  TORCH_CHECK(rank > 0 && input.dim() >= rank && input.sizes().slice(input.dim() - rank) == normalized_shape,
              "layer_norm: expected an input whose last dims are ", normalized_shape, ", got ", input.sizes());
  for (const OptionalTensor& factor : {weight, bias}) {
    TORCH_CHECK(!given(factor) || factor->sizes() == normalized_shape, "layer_norm: expected a weight and a bias of ",
                "shape ", normalized_shape, ", got ", factor->sizes());
  }
  return weighted(normalize(input, last_dims(input, rank), eps).values, weight, bias).to(input.scalar_type());
}

Gradients layer_norm_backward_rule(const Tensor& gradient, const Tensor& input, at::IntArrayRef normalized_shape,
                                   const Tensor& /*mean*/, const Tensor& saved_scale, const OptionalTensor& weight,
                                   const OptionalTensor& /*bias*/, std::array<bool, 3> wanted) {
  const std::vector<int64_t> dims = last_dims(input, normalized_shape.size());
  const Normalized normalized = normalize(input, dims, saved_scale);
  Gradients gradients;
  if (wanted[0]) {
    const Tensor weighted = given(weight) ? gradient * *weight : gradient;
    std::get<0>(gradients) = through_statistics(weighted, normalized, dims).to(input.scalar_type());
  }
  if (wanted[1] && given(weight)) {
    std::get<1>(gradients) = (gradient * normalized.values).sum_to_size(normalized_shape).to(weight->scalar_type());
  }
  if (wanted[2]) std::get<2>(gradients) = gradient.sum_to_size(normalized_shape);
  return gradients;
}

/// Channels are dim 1.
Tensor per_channel(const Tensor& channels, int64_t dims) {
  std::vector<int64_t> shape(dims, 1);
  shape[1] = -1;
  return channels.reshape(shape);
}

Gradients group_norm_backward_rule(const Tensor& gradient, const Tensor& input, const Tensor& /*mean*/,
                                   const Tensor& saved_scale, const OptionalTensor& weight, int64_t samples,
                                   int64_t channels, int64_t positions, int64_t groups, std::array<bool, 3> wanted) {
  const std::vector<int64_t> by_group = {samples, groups, channels / groups * positions};
  const std::vector<int64_t> by_channel = {samples, channels, positions};
  const Normalized normalized = normalize(input.reshape(by_group), {2}, saved_scale.reshape({samples, groups, 1}));
  Gradients gradients;
  if (wanted[0]) {
    const Tensor weighted = given(weight) ? gradient * per_channel(*weight, input.dim()) : gradient;
    const Tensor of_groups = through_statistics(weighted.reshape(by_group), normalized, {2});
    std::get<0>(gradients) = of_groups.reshape(input.sizes()).to(input.scalar_type());
  }
  const Tensor of_channels = gradient.reshape(by_channel);
  if (wanted[1]) std::get<1>(gradients) = (of_channels * normalized.values.reshape(by_channel)).sum({0, 2});
  if (wanted[2]) std::get<2>(gradients) = of_channels.sum({0, 2});
  return gradients;
}

/// All dims but that of the channels.
std::vector<int64_t> dims_of_channel(const Tensor& input) {
  std::vector<int64_t> dims(input.dim() - 1);
  std::iota(dims.begin(), dims.end(), 1);
  dims[0] = 0;
  return dims;
}

Tensor batch_norm_rule(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                       const OptionalTensor& running_mean, const OptionalTensor& running_variance, bool train,
                       double momentum, double eps, bool cudnn_enabled) {
  if (!train || input.dim() < 2) {
    return composite::batch_norm(input, weight, bias, running_mean, running_variance, train, momentum, eps,
                                 cudnn_enabled);
  }
  // LibTorch's operator writes the running statistics and has all complaints.
  if (given(running_mean) || given(running_variance)) {
    composite::batch_norm(input.detach(), {}, {}, running_mean, running_variance, train, momentum, eps, cudnn_enabled);
  }
  const auto by_channel = [&](const OptionalTensor& factor) {
    TORCH_CHECK(!given(factor) || (factor->dim() == 1 && factor->size(0) == input.size(1)),
                "batch_norm: expected a weight and a bias of shape [", input.size(1), "], got ", factor->sizes());
    return given(factor) ? OptionalTensor(per_channel(*factor, input.dim())) : factor;
  };
  const Tensor values = normalize(input, dims_of_channel(input), eps).values;
  return weighted(values, by_channel(weight), by_channel(bias)).to(input.scalar_type());
}

Normalized normalize_channels_with(const Tensor& input, const Tensor& mean, const Tensor& variance, double eps) {
  const Tensor scale = (per_channel(variance, input.dim()) + eps).rsqrt();
  return normalized_by(input, per_channel(mean, input.dim()), scale);
}

Gradients batch_norm_backward_rule(const Tensor& gradient, const Tensor& input, const OptionalTensor& weight,
                                   const OptionalTensor& running_mean, const OptionalTensor& running_variance,
                                   const OptionalTensor& /*saved_mean*/, const OptionalTensor& /*saved_scale*/,
                                   bool train, double eps, std::array<bool, 3> wanted) {
  const std::vector<int64_t> dims = dims_of_channel(input);
  const Normalized normalized =
      train ? normalize(input, dims, eps) : normalize_channels_with(input, *running_mean, *running_variance, eps);
  Gradients gradients;
  if (wanted[0]) {
    const Tensor weighted = given(weight) ? gradient * per_channel(*weight, input.dim()) : gradient;
    const Tensor of_input = train ? through_statistics(weighted, normalized, dims) : weighted * normalized.scale;
    std::get<0>(gradients) = of_input.to(input.scalar_type());
  }
  if (wanted[1]) std::get<1>(gradients) = (gradient * normalized.values).sum(dims);
  if (wanted[2]) std::get<2>(gradients) = gradient.sum(dims);
  return gradients;
}

// --- Norm

// The forward-mode derivatives of both overloads have a wrong shape.

Tensor norm_rule(const Tensor& self, const at::Scalar& p) { return at::linalg_vector_norm(self, p); }

Tensor norm_in_type_rule(const Tensor& self, const std::optional<at::Scalar>& p, at::ScalarType type) {
  return at::linalg_vector_norm(self, p.value_or(2), /*dim=*/std::nullopt, /*keepdim=*/false, type);
}

Tensor norm_except_dim_rule(const Tensor& self, int64_t p, int64_t dim) {
  if (dim == -1) return at::linalg_vector_norm(self, p);
  std::vector<int64_t> others(self.dim());
  std::iota(others.begin(), others.end(), 0);
  others.erase(others.begin() + at::maybe_wrap_dim(dim, self.dim()));
  if (others.empty()) return self.abs();  // no dims would mean all
  return at::linalg_vector_norm(self, p, others, /*keepdim=*/true);
}

/// LibTorch's fused kernel is mapped by a loop and has no forward-mode derivative.
Tensor weight_norm_rule(const Tensor& direction, const Tensor& length, int64_t dim) {
  return direction * (length / at::norm_except_dim(direction, 2, dim));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  using internal::under_forward_mode;
  using internal::where_differentiated;
  library.impl("_softmax_backward_data", under_forward_mode<softmax_backward_rule>());
  library.impl("_log_softmax_backward_data", under_forward_mode<log_softmax_backward_rule>());
  library.impl("layer_norm", under_forward_mode<layer_norm_rule>());
  library.impl("batch_norm", under_forward_mode<batch_norm_rule>());
  library.impl("instance_norm", under_forward_mode<composite::instance_norm>());
  library.impl("native_layer_norm_backward", where_differentiated<layer_norm_backward_rule>());
  library.impl("native_batch_norm_backward", where_differentiated<batch_norm_backward_rule>());
  library.impl("native_group_norm_backward", under_forward_mode<group_norm_backward_rule>());
  library.impl("norm.Scalar", norm_rule);
  library.impl("norm.ScalarOpt_dtype", norm_in_type_rule);
  library.impl("norm_except_dim", norm_except_dim_rule);
  library.impl("_weight_norm", weight_norm_rule);
}

}  // namespace graft
