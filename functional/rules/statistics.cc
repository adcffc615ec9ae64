// Kernels for quantiles and histograms, which LibTorch maps by a loop over the samples. See NOTE: [Kernels on the front
// key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <torch/library.h>

#include <optional>
#include <vector>

namespace graft {
namespace {

using at::Tensor;
using Dim = std::optional<int64_t>;

// --- Quantiles

void check_quantile(const Tensor& self, const Tensor& q, c10::string_view interpolation) {
  TORCH_CHECK(self.numel() > 0, "quantile: expected an input with elements, got shape ", self.sizes());
  TORCH_CHECK(q.dim() <= 1, "quantile: expected q of at most one dim, got shape ", q.sizes());
  TORCH_CHECK(self.scalar_type() == at::kFloat || self.scalar_type() == at::kDouble,
              "quantile: expected an input of type Float or Double, got ", self.scalar_type());
  TORCH_CHECK(self.scalar_type() == q.scalar_type(), "quantile: expected q of the input's type ", self.scalar_type(),
              ", got ", q.scalar_type());
  for (const char* known : {"linear", "lower", "higher", "midpoint", "nearest"}) {
    if (interpolation == known) return;
  }
  TORCH_CHECK(false, "quantile: interpolation must be one of linear, lower, higher, midpoint or nearest, but got ",
              interpolation);
}

/// Returns the numbers in order, [..., n], with those that are not numbers at the end.
Tensor in_order(const Tensor& self, Dim dim) {
  if (!dim || self.dim() == 0) return std::get<0>(self.reshape(-1).sort());
  return std::get<0>(self.movedim(*dim, -1).sort());
}

/// Returns the places of `q`, [m], in the order of `sorted`, [..., n], as [..., m] with fractions.
Tensor places(const Tensor& sorted, const Tensor& q, bool ignore_nan) {
  const Tensor nan = sorted.isnan();
  const int64_t last = sorted.size(-1) - 1;
  if (ignore_nan) return (q * (last - nan.sum(-1, /*keepdim=*/true))).clamp_min(0);
  return at::where(nan.any(-1, /*keepdim=*/true), last, q * last);
}

Tensor at_places(const Tensor& sorted, const Tensor& places, c10::string_view interpolation) {
  const auto at = [&](const Tensor& whole) { return sorted.gather(-1, whole.to(at::kLong)); };
  if (interpolation == "lower") return at(places.floor());
  if (interpolation == "higher") return at(places.ceil());
  if (interpolation == "nearest") return at(places.round());
  const Tensor below = places.floor();
  const Tensor weight = interpolation == "midpoint" ? at::full_like(places, 0.5) : places - below.detach();
  return at::lerp(at(below), at(places.ceil()), weight);
}

/// Gives `values`, [..., m], the shape of the result: m is first, or not there if `q` is a number.
Tensor shaped(Tensor values, const Tensor& self, const Tensor& q, Dim dim, bool keepdim) {
  values = q.dim() == 0 ? values.squeeze(-1) : values.movedim(-1, 0);
  if (!keepdim || self.dim() == 0) return values;
  if (dim) return values.unsqueeze(at::maybe_wrap_dim(*dim, self.dim()) + q.dim());
  std::vector<int64_t> shape = q.sizes().vec();
  shape.insert(shape.end(), self.dim(), 1);
  return values.reshape(shape);
}

Tensor quantile_of(const Tensor& self, const Tensor& q, Dim dim, bool keepdim, c10::string_view interpolation,
                   bool ignore_nan) {
  check_quantile(self, q, interpolation);
  const Tensor sorted = in_order(self, dim);
  const Tensor values = at_places(sorted, places(sorted, q.reshape(-1), ignore_nan), interpolation);
  return shaped(values, self, q, dim, keepdim);
}

Tensor as_tensor(double q, const Tensor& self) {
  TORCH_CHECK(q >= 0 && q <= 1, "quantile: q must be in the range [0, 1] but got ", q);
  return at::scalar_tensor(q, self.options());
}

Tensor quantile_rule(const Tensor& self, const Tensor& q, Dim dim, bool keepdim, c10::string_view interpolation) {
  return quantile_of(self, q, dim, keepdim, interpolation, /*ignore_nan=*/false);
}

Tensor quantile_at_rule(const Tensor& self, double q, Dim dim, bool keepdim, c10::string_view interpolation) {
  return quantile_of(self, as_tensor(q, self), dim, keepdim, interpolation, /*ignore_nan=*/false);
}

Tensor nanquantile_rule(const Tensor& self, const Tensor& q, Dim dim, bool keepdim, c10::string_view interpolation) {
  return quantile_of(self, q, dim, keepdim, interpolation, /*ignore_nan=*/true);
}

Tensor nanquantile_at_rule(const Tensor& self, double q, Dim dim, bool keepdim, c10::string_view interpolation) {
  return quantile_of(self, as_tensor(q, self), dim, keepdim, interpolation, /*ignore_nan=*/true);
}

// --- Histograms

/// Returns the least and the greatest value to count. Two that are equal mean those of the data, and if these are equal
/// too, the range is widened.
std::pair<Tensor, Tensor> histogram_range(const Tensor& flat, double min, double max) {
  TORCH_CHECK(min <= max, "histc: max must be larger than min, got ", min, " and ", max);
  const auto number = [&](double value) { return at::scalar_tensor(value, flat.options()); };
  if (min != max) return {number(min), number(max)};
  const bool has_data = flat.numel() > 0;
  const Tensor least = has_data ? flat.amin() : number(min), greatest = has_data ? flat.amax() : number(max);
  const Tensor more = (least == greatest).to(flat.scalar_type());
  return {least - more, greatest + more};
}

Tensor histc_rule(const Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max) {
  TORCH_CHECK(bins > 0, "histc: bins must be > 0, got ", bins);
  TORCH_CHECK(self.is_floating_point(), "histc: expected an input of a floating type, got ", self.scalar_type());
  const Tensor flat = self.detach().reshape(-1);
  const auto [least, greatest] = histogram_range(flat, min.toDouble(), max.toDouble());
  const Tensor counted = (flat >= least).logical_and(flat <= greatest);
  const Tensor place = (flat - least) * static_cast<double>(bins) / (greatest - least);
  const Tensor bin = place.masked_fill(counted.logical_not(), 0).to(at::kLong).clamp_max(bins - 1);
  return at::zeros({bins}, flat.options()).scatter_add(0, bin, counted.to(flat.scalar_type()));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("quantile", quantile_rule);
  library.impl("quantile.scalar", quantile_at_rule);
  library.impl("nanquantile", nanquantile_rule);
  library.impl("nanquantile.scalar", nanquantile_at_rule);
  library.impl("histc", histc_rule);
}

}  // namespace graft
