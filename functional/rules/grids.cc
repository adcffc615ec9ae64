// Kernels for sampling at grids. LibTorch maps affine_grid_generator by a loop over the samples. It maps grid_sampler
// well but does not differentiate it forward: sampling is a plain formula under forward mode, for images and volumes
// alike. See NOTE: [Kernels on the front key] in losses.cc.
//
// Shapes: n samples, c channels, s positions of the grid, d dims with positions.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/affine_grid_generator_compositeexplicitautograd_dispatch.h>
#include <torch/library.h>

#include <array>
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

/// Brings places in one dim, as numbers of elements, to where the padding has its elements from.
Tensor padded(const Tensor& plain, int64_t size, GridSamplerPadding padding, bool align_corners) {
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

/// Returns how much the elements at -1, 0, 1 and 2 from the whole number below a place count. \param part how far the
/// place is above it
std::array<Tensor, 4> cubic_shares(const Tensor& part) {
  constexpr double kBend = -0.75;
  const auto near = [&](const Tensor& x) { return ((kBend + 2) * x - (kBend + 3)) * x * x + 1; };
  const auto far = [&](const Tensor& x) { return ((kBend * x - 5 * kBend) * x + 8 * kBend) * x - 4 * kBend; };
  return {far(part + 1), near(part), near(1 - part), far(2 - part)};
}

/// Mixes the 4 x 4 elements around each place, each of which the padding may replace.
Tensor cubic(const Tensor& flat, const std::vector<Tensor>& at, at::IntArrayRef sizes, GridSamplerPadding padding,
             bool align_corners) {
  const Tensor below0 = at[0].detach().floor(), below1 = at[1].detach().floor();
  const auto shares0 = cubic_shares(at[0] - below0), shares1 = cubic_shares(at[1] - below1);
  Tensor sum;
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      const std::vector<Tensor> whole = {padded(below0 + (i - 1), sizes[0], padding, align_corners),
                                         padded(below1 + (j - 1), sizes[1], padding, align_corners)};
      const Tensor part = elements_at(flat, whole, sizes) * (shares0[i] * shares1[j]).unsqueeze(1);
      sum = sum.defined() ? sum + part : part;
    }
  }
  return sum;
}

/// Returns the elements at the places, [n, c, s]. \param plain in each dim, [n, s], as numbers of elements
Tensor sampled(const Tensor& flat, std::vector<Tensor> plain, at::IntArrayRef sizes,
               GridSamplerInterpolation interpolation, GridSamplerPadding padding, bool align_corners) {
  if (interpolation == GridSamplerInterpolation::Bicubic) return cubic(flat, plain, sizes, padding, align_corners);
  for (std::size_t d = 0; d < sizes.size(); ++d) plain[d] = padded(plain[d], sizes[d], padding, align_corners);
  return interpolation == GridSamplerInterpolation::Nearest ? nearest(flat, plain, sizes) : linear(flat, plain, sizes);
}

/// \param input [n, c, ...], the last d dims have positions \param grid [n, ..., d], the last dim's coordinate first
Tensor grid_sampler_rule(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding,
                         bool align_corners) {
  at::native::check_grid_sampler_common(input, grid);
  if (input.dim() == 5) at::native::check_grid_sampler_3d(input, grid, interpolation);
  const auto sizes = input.sizes().slice(2);
  const Tensor coordinates = grid.flatten(1, -2);  // [n, s, d]
  std::vector<Tensor> at;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    const Tensor in_dim = coordinates.select(2, static_cast<int64_t>(sizes.size() - 1 - d));
    at.push_back(in_elements(in_dim, sizes[d], align_corners));
  }
  const Tensor flat = input.flatten(2);
  std::vector<int64_t> shape = {input.size(0), input.size(1)};
  const auto positions = grid.sizes().slice(1, sizes.size());
  shape.insert(shape.end(), positions.begin(), positions.end());
  return sampled(flat, at, sizes, static_cast<GridSamplerInterpolation>(interpolation),
                 static_cast<GridSamplerPadding>(padding), align_corners)
      .reshape(shape);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("affine_grid_generator", at::compositeexplicitautograd::affine_grid_generator);
  // grid_sampler calls the other two where the front key is past.
  for (const char* name : {"grid_sampler", "grid_sampler_2d", "grid_sampler_3d"}) {
    library.impl(name, internal::under_forward_mode<grid_sampler_rule>());
  }
}

}  // namespace graft
