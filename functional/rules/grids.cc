// Kernels for sampling at grids. LibTorch maps affine_grid_generator by a loop over the samples. It maps grid_sampler
// well but does not differentiate it forward: linear and nearest sampling are plain formulas under forward mode, for
// images and volumes alike. See NOTE: [Kernels on the front key] in losses.cc.
//
// Shapes: n samples, c channels, s positions of the grid, d dims with positions.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/affine_grid_generator_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include <cstddef>
#include <vector>

#include "functional/rules/front_key.h"

namespace graft {
namespace {

using at::Tensor;
using at::native::GridSamplerInterpolation;
using at::native::GridSamplerPadding;

/// Returns coordinates between -1 and 1 as numbers of elements of a dim.
Tensor in_elements(const Tensor& coordinates, int64_t size, bool align_corners) {
  const double elements = static_cast<double>(size);
  return align_corners ? (coordinates + 1) * ((elements - 1) / 2) : ((coordinates + 1) * elements - 1) / 2;
}

/// Folds coordinates back at both ends until they are inside.
Tensor reflected(const Tensor& coordinates, int64_t size, bool align_corners) {
  const double begin = align_corners ? 0 : -0.5;
  const double span = static_cast<double>(size) - (align_corners ? 1 : 0);
  if (span == 0) return at::zeros_like(coordinates);
  const Tensor distance = (coordinates - begin).abs();
  const Tensor folds = (distance / span).detach().floor();
  const Tensor rest = distance - folds * span;
  return at::where(folds.remainder(2) == 0, rest, span - rest) + begin;
}

/// Returns where to sample in one dim, [n, s], as numbers of elements.
Tensor places(const Tensor& coordinates, int64_t size, GridSamplerPadding padding, bool align_corners) {
  const Tensor plain = in_elements(coordinates, size, align_corners);
  if (padding == GridSamplerPadding::Zeros) return plain;
  const Tensor inside = padding == GridSamplerPadding::Reflection ? reflected(plain, size, align_corners) : plain;
  return inside.clamp(0, size - 1);
}

/// Returns the elements at whole numbers in each dim, [n, c, s], and 0 outside.
/// \param flat [n, c, elements] \param at one for each dim, [n, s]
Tensor elements_at(const Tensor& flat, const std::vector<Tensor>& at, at::IntArrayRef sizes) {
  Tensor index = at::zeros_like(at[0], at[0].options().dtype(at::kLong));
  Tensor inside = at::ones_like(index, index.options().dtype(at::kBool));
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    inside = inside.logical_and(at[d] >= 0).logical_and(at[d] <= sizes[d] - 1);
    index = index * sizes[d] + at[d].clamp(0, sizes[d] - 1).to(at::kLong);
  }
  const Tensor taken = flat.gather(2, index.unsqueeze(1).expand({-1, flat.size(1), -1}));
  return taken.masked_fill(inside.logical_not().unsqueeze(1), 0);
}

/// Mixes the 2^d elements around each place.
Tensor linear(const Tensor& flat, const std::vector<Tensor>& at, at::IntArrayRef sizes) {
  Tensor sum;
  for (std::size_t corner = 0; corner < std::size_t{1} << sizes.size(); ++corner) {
    std::vector<Tensor> corner_at;
    Tensor weight;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const bool above = (corner >> d & 1) != 0;
      const Tensor below = at[d].detach().floor();
      corner_at.push_back(above ? below + 1 : below);
      const Tensor share = above ? at[d] - below : below + 1 - at[d];
      weight = weight.defined() ? weight * share : share;
    }
    const Tensor part = elements_at(flat, corner_at, sizes) * weight.unsqueeze(1);
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

Tensor nearest(const Tensor& flat, const std::vector<Tensor>& at, at::IntArrayRef sizes) {
  std::vector<Tensor> whole;
  for (const Tensor& in_dim : at) whole.push_back(in_dim.detach().round());
  return elements_at(flat, whole, sizes);
}

/// \param input [n, c, ...], the last d dims have positions \param grid [n, ..., d], the last dim's coordinate first
Tensor grid_sampler_rule(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
                         bool align_corners) {
  at::native::check_grid_sampler_common(input, grid);
  const auto sizes = input.sizes().slice(2);
  const Tensor coordinates = grid.flatten(1, -2);  // [n, s, d]
  std::vector<Tensor> at;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const Tensor in_dim = coordinates.select(2, static_cast<int64_t>(sizes.size() - 1 - d));
    at.push_back(places(in_dim, sizes[d], static_cast<GridSamplerPadding>(padding), align_corners));
  }
  const bool is_nearest = interpolation == static_cast<int64_t>(GridSamplerInterpolation::Nearest);
  const Tensor flat = input.flatten(2);
  std::vector<int64_t> shape = {input.size(0), input.size(1)};
  const auto positions = grid.sizes().slice(1, sizes.size());
  shape.insert(shape.end(), positions.begin(), positions.end());
  return (is_nearest ? nearest(flat, at, sizes) : linear(flat, at, sizes)).reshape(shape);
}

/// Bicubic sampling stays as it is: without a forward-mode derivative.
void grid_sampler_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const int64_t interpolation = torch::jit::peek(*stack, 2, 5).toInt();
  if (interpolation == static_cast<int64_t>(GridSamplerInterpolation::Bicubic)) {
    internal::run_without_rule(op, keys, stack);
  } else {
    internal::run_under_forward_mode<grid_sampler_rule>(op, keys, stack);
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("affine_grid_generator", at::compositeexplicitautograd::affine_grid_generator);
  // grid_sampler calls the other two where the front key is past.
  for (const char* name : {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<grid_sampler_kernel>());
  }
}

}  // namespace graft
