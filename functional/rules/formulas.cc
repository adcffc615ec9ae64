// Kernels for operators that are short formulas or compositions and that LibTorch nevertheless maps by a loop over the
// samples or refuses. See NOTE: [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/addr_compositeexplicitautograd_dispatch.h>
#include <ATen/ops/chain_matmul_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/isclose_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linalg_solve_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/linalg_tensorsolve_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/mish_backward_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/stft_compositeimplicitautograd_dispatch.h>
#include <c10/core/DefaultDtype.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "functional/rules/front_key.h"
#include "functional/rules/wrapped_value.h"

namespace graft {
namespace {

using at::Tensor;

Tensor glu_rule(const Tensor& self, int64_t dim) {
  TORCH_CHECK(self.dim() > 0, "glu: does not support numbers, because their halves cannot be taken");
  TORCH_CHECK(self.size(dim) % 2 == 0, "glu: the dim to halve must be of even size, but dim ", dim, " is of size ",
              self.size(dim));
  const std::vector<Tensor> halves = self.chunk(2, dim);
  return halves[0] * halves[1].sigmoid();
}

// --- rrelu, which LibTorch refuses to map because it is random

/// Returns a slope for each element: 1 above 0, else the next random number, in the order of LibTorch's kernel.
Tensor random_slopes(const Tensor& self, const at::Scalar& lower, const at::Scalar& upper,
                     const std::optional<at::Generator>& generator) {
  const double least = lower.toDouble(), most = upper.toDouble();
  TORCH_CHECK(least <= most, "rrelu: lower must not be above upper, got ", least, " and ", most);
  const Tensor is_low = (self.detach() <= 0).flatten();
  // How many are low differs between samples, so there is a number for each element.
  const int64_t count = internal::is_mapped(self) ? self.numel() : is_low.sum().item<int64_t>();
  if (count == 0) return at::ones_like(self);
  const Tensor numbers = at::rand({count}, generator, self.options().dtype(at::kDouble)) * (most - least) + least;
  const Tensor next = is_low.cumsum(0).sub(1).clamp_min(0);
  const Tensor slopes = at::where(is_low, numbers.gather(0, next), at::ones({}, numbers.options()));
  return slopes.reshape(self.sizes()).to(self.scalar_type());
}

double mean_slope(const at::Scalar& lower, const at::Scalar& upper) {
  return (lower.toDouble() + upper.toDouble()) / 2;
}

Tensor rrelu_rule(const Tensor& self, const at::Scalar& lower, const at::Scalar& upper, bool training,
                  std::optional<at::Generator> generator) {
  return training ? self * random_slopes(self, lower, upper, generator)
                  : at::leaky_relu(self, mean_slope(lower, upper));
}

Tensor& rrelu_in_place_rule(Tensor& self, const at::Scalar& lower, const at::Scalar& upper, bool training,
                            std::optional<at::Generator> generator) {
  return training ? self.mul_(random_slopes(self, lower, upper, generator))
                  : at::leaky_relu_(self, mean_slope(lower, upper));
}

Tensor renorm_rule(const Tensor& self, const at::Scalar& p, int64_t dim, const at::Scalar& max_norm) {
  TORCH_CHECK(self.dim() > 1, "renorm: expected an input of at least two dims, got shape ", self.sizes());
  TORCH_CHECK(p.toDouble() > 0 && max_norm.toDouble() >= 0, "renorm: expected p > 0 and maxnorm >= 0, got ", p, " and ",
              max_norm);
  std::vector<int64_t> others;
  for (int64_t i = 0; i < self.dim(); ++i) {
    if (i != at::maybe_wrap_dim(dim, self.dim())) others.push_back(i);
  }
  const Tensor norm = at::linalg_vector_norm(self, p, others, /*keepdim=*/true);
  return self * at::where(norm > max_norm, max_norm / (norm + 1e-7), at::ones_like(norm));
}

Tensor& addr_in_place_rule(Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                           const at::Scalar& alpha) {
  return self.copy_(at::addr(self, a, b, beta, alpha));
}

Tensor vander_rule(const Tensor& x, std::optional<int64_t> columns, bool increasing) {
  TORCH_CHECK(x.dim() == 1, "vander: expected an input of one dim, got shape ", x.sizes());
  const int64_t size = columns.value_or(x.size(0));
  TORCH_CHECK(size >= 0, "vander: N must be non-negative, got ", size);
  if (size == 0) return x.unsqueeze(1).narrow(1, 0, 0).clone();
  std::vector<Tensor> powers = {at::ones_like(x)};  // not pow, whose derivatives are NaN under grad of jvp where x < 0
  while (static_cast<int64_t>(powers.size()) < size) powers.push_back(powers.back() * x);
  if (!increasing) std::reverse(powers.begin(), powers.end());
  return at::stack(powers, 1);
}

// --- Linear algebra whose derivatives under forward mode are silently wrong

/// The forward-mode derivative of cholesky_inverse itself is wrong.
Tensor cholesky_inverse_rule(const Tensor& self, bool upper) {
  const Tensor identity = at::eye(self.size(-1), self.options()).expand(self.sizes());
  return at::cholesky_solve(identity, self, upper);
}

/// The forward-mode derivative of triangular_solve's backward is wrong.
std::tuple<Tensor, Tensor> triangular_solve_rule(const Tensor& self, const Tensor& a, bool upper, bool transpose,
                                                 bool unitriangular) {
  const Tensor coefficients = transpose ? a.mT() : a;
  return {at::linalg_solve_triangular(coefficients, self, /*upper=*/upper != transpose, /*left=*/true, unitriangular),
          a.clone()};
}

/// The forward-mode derivative of linalg_solve takes its factors for constants, so that grad of jvp is wrong.
Tensor linalg_solve_rule(const Tensor& a, const Tensor& b, bool left) {
  const bool is_vector =
      b.dim() == 1 || (b.dim() + 1 == a.dim() && b.sizes() == a.sizes().slice(0, static_cast<std::size_t>(b.dim())));
  if (is_vector && !left) return at::compositeimplicitautograd::linalg_solve(a, b, left);  // which it refuses
  const auto [factors, pivots] = at::linalg_lu_factor(a);
  const Tensor x = at::linalg_lu_solve(factors, pivots, is_vector ? b.unsqueeze(-1) : b, left);
  return is_vector ? x.squeeze(-1) : x;
}

// --- linspace

using Type = std::optional<at::ScalarType>;
using Layout = std::optional<at::Layout>;
using Device = std::optional<at::Device>;
using PinMemory = std::optional<bool>;

/// LibTorch's batching rule gives the result the type of the ends.
Tensor linspace_of_tensors_rule(const Tensor& start, const Tensor& end, int64_t steps, Type type, Layout, Device,
                                PinMemory) {
  TORCH_CHECK(start.dim() == 0 && end.dim() == 0, "linspace: expected ends without dims, got shapes ", start.sizes(),
              " and ", end.sizes());
  TORCH_CHECK(steps >= 0, "linspace: number of steps must be non-negative, got ", steps);
  const at::ScalarType result_type = type.value_or(c10::get_default_dtype_as_scalartype());
  const at::ScalarType exact_type = c10::isIntegralType(result_type, /*includeBool=*/false) ? at::kDouble : result_type;
  // Not differentiable, as outside transforms.
  const Tensor from = start.detach().to(result_type).to(exact_type), to = end.detach().to(result_type).to(exact_type);
  const Tensor numbers = at::arange(steps, from.options());
  const Tensor step = (to - from) / std::max<int64_t>(steps - 1, 1);
  // From the nearer end, so that both ends are exact.
  const Tensor values = at::where(numbers < steps / 2, from + step * numbers, to - step * (steps - 1 - numbers));
  return (steps == 1 ? from.reshape(1) : values).to(result_type);
}

Tensor linspace_to_number_rule(const Tensor& start, const at::Scalar& end, int64_t steps, Type type, Layout layout,
                               Device device, PinMemory pin) {
  return linspace_of_tensors_rule(start, at::scalar_tensor(end, start.options()), steps, type, layout, device, pin);
}

Tensor linspace_from_number_rule(const at::Scalar& start, const Tensor& end, int64_t steps, Type type, Layout layout,
                                 Device device, PinMemory pin) {
  return linspace_of_tensors_rule(at::scalar_tensor(start, end.options()), end, steps, type, layout, device, pin);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  namespace composite = at::compositeimplicitautograd;
  using Stft =
      Tensor(const Tensor&, int64_t, std::optional<int64_t>, std::optional<int64_t>, const std::optional<Tensor>&, bool,
             std::optional<bool>, std::optional<bool>, std::optional<bool>);
  using CenteredStft =
      Tensor(const Tensor&, int64_t, std::optional<int64_t>, std::optional<int64_t>, const std::optional<Tensor>&, bool,
             c10::string_view, bool, std::optional<bool>, std::optional<bool>, std::optional<bool>);
  library.impl("addr", at::compositeexplicitautograd::addr);
  library.impl("addr_", addr_in_place_rule);
  library.impl("chain_matmul", composite::chain_matmul);
  library.impl("cholesky_inverse", internal::under_forward_mode<cholesky_inverse_rule>());
  library.impl("glu", glu_rule);
  library.impl("isclose", composite::isclose);
  library.impl("linalg_solve", internal::under_forward_mode<linalg_solve_rule>());
  library.impl("linalg_tensorsolve", composite::linalg_tensorsolve);
  library.impl("linspace.Tensor_Tensor", linspace_of_tensors_rule);
  library.impl("linspace.Tensor_Scalar", linspace_to_number_rule);
  library.impl("linspace.Scalar_Tensor", linspace_from_number_rule);
  library.impl("mish_backward", composite::mish_backward);
  library.impl("renorm", renorm_rule);
  library.impl("rrelu", rrelu_rule);
  library.impl("rrelu_", rrelu_in_place_rule);
  library.impl("stft", static_cast<Stft*>(composite::stft));
  library.impl("stft.center", static_cast<CenteredStft*>(composite::stft));
  library.impl("triangular_solve", internal::under_forward_mode<triangular_solve_rule>());
  library.impl("vander", vander_rule);
}

}  // namespace graft
