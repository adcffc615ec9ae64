// Kernels for padding, unpooling, fractional pooling and nearest-exact upsampling, which LibTorch maps by a loop over
// the samples. See NOTE: [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_pad_enum_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact1d_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact2d_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/_upsample_nearest_exact3d_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace graft {
namespace {

using at::Tensor;

/// A list of numbers for each dim that has positions, the last dims of a tensor.
using PerDim = std::vector<int64_t>;

/// Checks that `input` is [n, c, ...] or [c, ...] with `dims` dims that have positions.
void check_input(const char* name, const Tensor& input, std::size_t dims) {
  const auto expected = static_cast<int64_t>(dims);
  TORCH_CHECK(input.dim() == expected + 1 || input.dim() == expected + 2, name, ": expected an input of ", expected + 1,
              " or ", expected + 2, " dims, got shape ", input.sizes());
}

void check_per_dim(const char* name, const char* what, at::IntArrayRef list, std::size_t dims) {
  TORCH_CHECK(list.size() == dims, name, ": expected ", what, " with ", dims, " elements, got ", list);
}

int64_t product(at::IntArrayRef sizes) {
  int64_t all = 1;
  for (const int64_t size : sizes) all *= size;
  return all;
}

/// Returns the shape of `input` with other sizes in its last dims.
PerDim with_last(const Tensor& input, at::IntArrayRef sizes) {
  PerDim shape(input.sizes().begin(), input.sizes().end() - static_cast<std::ptrdiff_t>(sizes.size()));
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return shape;
}

// --- Unpooling

Tensor max_unpool(const char* name, const Tensor& self, const Tensor& indices, at::IntArrayRef size, std::size_t dims) {
  check_input(name, self, dims);
  check_per_dim(name, "output_size", size, dims);
  TORCH_CHECK(indices.scalar_type() == at::kLong, name, ": expected indices of type Long, got ", indices.scalar_type());
  TORCH_CHECK(indices.sizes() == self.sizes(), name, ": expected indices of the input's shape ", self.sizes(), ", got ",
              indices.sizes());
  const int64_t first = -static_cast<int64_t>(dims);
  PerDim flat_shape = with_last(self, size);
  flat_shape.resize(flat_shape.size() - dims);
  flat_shape.push_back(product(size));
  return self.new_zeros(flat_shape)
      .scatter(-1, indices.flatten(first, -1), self.flatten(first, -1))
      .reshape(with_last(self, size));
}

Tensor max_unpool2d_rule(const Tensor& self, const Tensor& indices, at::IntArrayRef size) {
  return max_unpool("max_unpool2d", self, indices, size, 2);
}

Tensor max_unpool3d_rule(const Tensor& self, const Tensor& indices, at::IntArrayRef size, at::IntArrayRef stride,
                         at::IntArrayRef padding) {
  check_per_dim("max_unpool3d", "stride", stride, 3);
  check_per_dim("max_unpool3d", "padding", padding, 3);
  TORCH_CHECK(std::all_of(stride.begin(), stride.end(), [](int64_t step) { return step > 0; }),
              "max_unpool3d: strides should be greater than zero, but got ", stride);
  return max_unpool("max_unpool3d", self, indices, size, 3);
}

// --- Fractional pooling

/// Returns where the windows begin in one dim, [n, c, output]. \param sample between 0 and 1, [n, c]
Tensor window_begins(const Tensor& sample, int64_t input, int64_t output, int64_t kernel) {
  const Tensor last = at::full({1}, input - kernel, sample.options().dtype(at::kLong));
  const Tensor last_of_all = last.expand({sample.size(0), sample.size(1), 1});
  if (output == 1) return last_of_all;
  const double step = static_cast<double>(input - kernel) / static_cast<double>(output - 1);
  const Tensor offset = sample.unsqueeze(2);
  const Tensor numbers = at::arange(output - 1, sample.options());
  const Tensor begins = ((numbers + offset) * step).to(at::kLong) - (offset * step).to(at::kLong);
  return at::cat({begins, last_of_all}, 2);
}

/// Returns for each window the places of its elements in the flattened input, [n, c, outputs, elements of the kernel].
/// \param samples [n, c, d], one for each dim with positions
Tensor window_places(const std::vector<Tensor>& samples, at::IntArrayRef input, at::IntArrayRef kernel,
                     at::IntArrayRef output) {
  const int64_t n = samples[0].size(0), c = samples[0].size(1);
  Tensor places = at::zeros({n, c, 1, 1}, samples[0].options().dtype(at::kLong));
  for (std::size_t d = 0; d < input.size(); ++d) {
    const Tensor begins = window_begins(samples[d], input[d], output[d], kernel[d]);
    const Tensor within = begins.unsqueeze(3) + at::arange(kernel[d], begins.options());  // [n, c, output, kernel]
    // All pairs of a place so far and a place in this dim.
    const Tensor pairs = places.unsqueeze(3).unsqueeze(5) * input[d] + within.unsqueeze(2).unsqueeze(4);
    places = pairs.reshape({n, c, places.size(2) * output[d], places.size(3) * kernel[d]});
  }
  return places;
}

std::tuple<Tensor, Tensor> fractional_max_pool(const char* name, const Tensor& self, at::IntArrayRef kernel,
                                               at::IntArrayRef output, const std::vector<Tensor>& samples) {
  const std::size_t dims = kernel.size();
  const auto sizes = self.sizes().slice(self.sizes().size() - dims);
  for (std::size_t d = 0; d < dims; ++d) {
    TORCH_CHECK(output[d] + kernel[d] - 1 <= sizes[d], name, ": a kernel of ", kernel, " is too large for an input of ",
                sizes, " and an output of ", output);
  }
  const Tensor flat = self.dim() == static_cast<int64_t>(dims) + 1 ? self.flatten(1).unsqueeze(0) : self.flatten(2);
  const Tensor places = window_places(samples, sizes, kernel, output);
  const Tensor windows = flat.gather(2, places.flatten(2)).reshape(places.sizes());
  const auto [values, within] = windows.max(3);
  const Tensor indices = places.gather(3, within.unsqueeze(3)).squeeze(3);
  return {values.reshape(with_last(self, output)), indices.reshape(with_last(self, output))};
}

/// Returns the samples of each dim with positions, [n, c] each. \param reversed the last dim has the first sample
std::vector<Tensor> samples_of(const char* name, const Tensor& self, const Tensor& samples, std::size_t dims,
                               bool reversed) {
  check_input(name, self, dims);
  const bool one = self.dim() == static_cast<int64_t>(dims) + 1;
  const PerDim expected = {one ? 1 : self.size(0), self.size(one ? 0 : 1), static_cast<int64_t>(dims)};
  TORCH_CHECK(samples.sizes() == expected, name, ": expected random samples of shape ", at::IntArrayRef(expected),
              " for an input of shape ", self.sizes(), ", got ", samples.sizes());
  std::vector<Tensor> all = samples.unbind(2);
  if (reversed) std::reverse(all.begin(), all.end());
  return all;
}

std::tuple<Tensor, Tensor> fractional_max_pool2d_rule(const Tensor& self, at::IntArrayRef kernel,
                                                      at::IntArrayRef output, const Tensor& samples) {
  const char* name = "fractional_max_pool2d";
  check_per_dim(name, "kernel_size", kernel, 2);
  check_per_dim(name, "output_size", output, 2);
  return fractional_max_pool(name, self, kernel, output, samples_of(name, self, samples, 2, /*reversed=*/true));
}

std::tuple<Tensor, Tensor> fractional_max_pool3d_rule(const Tensor& self, at::IntArrayRef kernel,
                                                      at::IntArrayRef output, const Tensor& samples) {
  const char* name = "fractional_max_pool3d";
  check_per_dim(name, "kernel_size", kernel, 3);
  check_per_dim(name, "output_size", output, 3);
  return fractional_max_pool(name, self, kernel, output, samples_of(name, self, samples, 3, /*reversed=*/false));
}

// --- Upsampling

using Scale = std::optional<double>;

/// Returns `self` with dim `dim` stretched to `size` by taking the nearest elements.
Tensor stretched(const Tensor& self, int64_t dim, int64_t size, Scale scale) {
  const double of_sizes = static_cast<double>(self.size(dim)) / static_cast<double>(size);
  const double step = scale.value_or(0) > 0 ? 1 / *scale : of_sizes;
  // In the precision that LibTorch's kernel has, so that both round to the same element.
  const auto type = self.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Tensor middles = (at::arange(size, self.options().dtype(type)) + 0.5) * step;
  return self.index_select(dim, middles.floor().to(at::kLong).clamp_max(self.size(dim) - 1));
}

Tensor upsample_nearest_exact(const char* name, const Tensor& self, at::IntArrayRef size,
                              const std::vector<Scale>& scales) {
  TORCH_CHECK(self.dim() == static_cast<int64_t>(scales.size()) + 2, name, ": expected an input of ", scales.size() + 2,
              " dims, got shape ", self.sizes());
  check_per_dim(name, "output_size", size, scales.size());
  TORCH_CHECK(product(self.sizes().slice(1)) > 0 && product(size) > 0, name,
              ": input and output sizes should be greater than 0, got ", self.sizes(), " and ", size);
  Tensor result = self;
  for (std::size_t d = 0; d < scales.size(); ++d) {
    result = stretched(result, static_cast<int64_t>(d) + 2, size[d], scales[d]);
  }
  return result;
}

Tensor upsample_nearest_exact1d_rule(const Tensor& self, at::IntArrayRef size, Scale scale) {
  return upsample_nearest_exact("_upsample_nearest_exact1d", self, size, {scale});
}

Tensor upsample_nearest_exact2d_rule(const Tensor& self, at::IntArrayRef size, Scale height, Scale width) {
  return upsample_nearest_exact("_upsample_nearest_exact2d", self, size, {height, width});
}

Tensor upsample_nearest_exact3d_rule(const Tensor& self, at::IntArrayRef size, Scale depth, Scale height, Scale width) {
  return upsample_nearest_exact("_upsample_nearest_exact3d", self, size, {depth, height, width});
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  namespace composite = at::compositeimplicitautograd;
  library.impl("_pad_enum", composite::_pad_enum);
  library.impl("max_unpool2d", max_unpool2d_rule);
  library.impl("max_unpool3d", max_unpool3d_rule);
  library.impl("fractional_max_pool2d", fractional_max_pool2d_rule);
  library.impl("fractional_max_pool3d", fractional_max_pool3d_rule);
  library.impl("_upsample_nearest_exact1d", upsample_nearest_exact1d_rule);
  library.impl("_upsample_nearest_exact2d", upsample_nearest_exact2d_rule);
  library.impl("_upsample_nearest_exact3d", upsample_nearest_exact3d_rule);
  library.impl("_upsample_nearest_exact1d.vec", composite::_upsample_nearest_exact1d);
  library.impl("_upsample_nearest_exact2d.vec", composite::_upsample_nearest_exact2d);
  library.impl("_upsample_nearest_exact3d.vec", composite::_upsample_nearest_exact3d);
}

}  // namespace graft
