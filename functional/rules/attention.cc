// Kernels that attention needs. MultiheadAttention compares query, key and value by `equal`, which has no rule under
// vmap; scaled_dot_product_attention picks fused kernels, which have neither a rule nor forward-mode derivatives.
// See [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <tuple>

#include "functional/rules/optional_tensor.h"
#include "functional/rules/wrapped_value.h"

namespace graft {
namespace {

using at::Tensor;
using internal::given;
using internal::OptionalTensor;

/// Returns all samples of all levels, as one plain tensor. Their dims come in no particular order.
Tensor with_all_samples(Tensor tensor) {
  while (const Tensor* value = internal::wrapped_value(tensor)) tensor = Tensor(*value);
  return tensor;
}

/// One answer for all samples. A tensor equals itself, whatever it holds: NaN in one sample must not change what
/// attention does.
bool equal_rule(const Tensor& self, const Tensor& other) {
  if (self.is_same(other)) return true;
  if (self.sizes() != other.sizes()) return false;
  const Tensor answers = with_all_samples(self.eq(other).all());
  const bool is_equal = answers.all().item<bool>();
  TORCH_CHECK(is_equal || !answers.any().item<bool>(),
              "equal: the tensors are equal in some samples of a vmap and not in others, and one bool cannot say so; "
              "compare them by eq, or map only what differs");
  return is_equal;
}

/// LibTorch's own checks that its plain formula leaves out.
void check_attention(const Tensor& query, const Tensor& key, const Tensor& value, const OptionalTensor& mask) {
  const auto dtype = query.scalar_type();
  TORCH_CHECK(dtype == key.scalar_type() && dtype == value.scalar_type(),
              "Expected query, key, and value to have the same dtype, but got query.dtype: ", dtype,
              " key.dtype: ", key.scalar_type(), " and value.dtype: ", value.scalar_type(), " instead.");
  TORCH_CHECK(query.device() == key.device() && query.device() == value.device(),
              "Expected query, key, and value to have the same device type, but got query.device: ", query.device(),
              " key.device: ", key.device(), " and value.device: ", value.device(), " instead.");
  TORCH_CHECK(query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
              "Expected query, key, and value to all be at least 2 dimensional, but got query.dim: ", query.dim(),
              " key.dim: ", key.dim(), " and value.dim: ", value.dim(), " instead.");
  if (!given(mask)) return;
  const auto mask_dtype = mask->scalar_type();
  TORCH_CHECK(mask_dtype == at::kBool || mask_dtype == at::kFloat || mask_dtype == dtype,
              "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: ",
              mask_dtype, " and query.dtype: ", dtype, " instead.");
}

/// Returns what to add to the scores: the plain formula takes true for a 1.
OptionalTensor additive_mask(const OptionalTensor& mask, const Tensor& query) {
  if (!given(mask) || mask->scalar_type() != at::kBool) return mask;
  const double lowest = -std::numeric_limits<double>::infinity();
  return at::zeros_like(*mask, query.options()).masked_fill(mask->logical_not(), lowest);
}

Tensor scaled_dot_product_attention_rule(const Tensor& query, const Tensor& key, const Tensor& value,
                                         const OptionalTensor& mask, double dropout, bool is_causal,
                                         std::optional<double> scale, bool enable_gqa) {
  check_attention(query, key, value, mask);
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, additive_mask(mask, query), dropout,
                                                            is_causal,
                                                            /*dropout_mask=*/std::nullopt, scale, enable_gqa));
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("equal", equal_rule);
  library.impl("scaled_dot_product_attention", scaled_dot_product_attention_rule);
}

}  // namespace graft
