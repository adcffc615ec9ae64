// Kernels for distances between all pairs of rows. LibTorch maps pdist by a loop over the samples, differentiates
// neither pdist nor cdist forward, and gets the backward of cdist wrong where the gradient alone is mapped. See NOTE:
// [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>

#include "functional/rules/front_key.h"
#include "functional/rules/wrapped_value.h"

namespace graft {
namespace {

using at::Tensor;

/// cdist's way that is exact for rows that are near each other.
constexpr int64_t kWithoutProducts = 2;

Tensor pdist_rule(const Tensor& self, double p) {
  TORCH_CHECK(self.dim() == 2, "pdist: expected an input of two dims, got shape ", self.sizes());
  TORCH_CHECK(self.is_floating_point(), "pdist: expected an input of a floating type, got ", self.scalar_type());
  TORCH_CHECK(p >= 0, "pdist: only supports non-negative p values, got ", p);
  const int64_t rows = self.size(0);
  const Tensor pairs = at::triu_indices(rows, rows, /*offset=*/1, self.options().dtype(at::kLong));
  const Tensor of_all = at::cdist(self, self, p, /*compute_mode=*/kWithoutProducts);
  return of_all.reshape(-1).index_select(0, pairs[0] * rows + pairs[1]);
}

/// A formula that costs the memory of all differences: only where LibTorch has no way.
Tensor cdist_rule(const Tensor& a, const Tensor& b, double p, std::optional<int64_t> /*how*/) {
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2, "cdist: expected inputs of at least two dims, got shapes ", a.sizes(),
              " and ", b.sizes());
  TORCH_CHECK(a.size(-1) == b.size(-1), "cdist: expected rows of one length, got shapes ", a.sizes(), " and ",
              b.sizes());
  TORCH_CHECK(p >= 0, "cdist: only supports non-negative p values, got ", p);
  return at::linalg_vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, {-1});
}

/// Spreads the rows and their distances over what the gradient is mapped over, for LibTorch's batching rule. The stack
/// holds the gradient, both lists of rows, p and the distances.
void cdist_backward_kernel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Tensor gradient = torch::jit::peek(*stack, 0, 5).toTensor();
  if (internal::is_mapped(gradient)) {
    for (const std::size_t place : {1, 2, 4}) {
      c10::IValue& value = torch::jit::peek(*stack, place, 5);
      value = value.toTensor() + gradient.new_zeros(value.toTensor().sizes());
    }
  }
  internal::run_without_rule(op, keys, stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("_cdist_backward", torch::CppFunction::makeFromBoxedFunction<cdist_backward_kernel>());
  library.impl("pdist", pdist_rule);
  library.impl("cdist", internal::under_forward_mode<cdist_rule>());
}

}  // namespace graft
