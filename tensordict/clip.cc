#include "tensordict/clip.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tensordict/global_reduce.h"
#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/write_check.h"
#include "tensordict/ties.h"

namespace graft {
namespace {

using internal::Tensors;

at::Tensor checked_norm(const char* call, const TensorDict& tree, const ClipOptions& options) {
  at::Tensor norm = global_norm(tree, options.batch_dims);
  if (options.error_if_nonfinite) {
    TORCH_CHECK(norm.isfinite().all().item<bool>(), call, ": the norm is not finite; the tree is unchanged");
  }
  return norm;
}

void check_targets(const char* call, const TensorDict& tree) {
  internal::WriteProblems problems;
  for (const auto& [path, leaf] : tree.leaves()) problems.check_target(path, leaf, internal::Source{});
  problems.throw_if_any(call);
}

at::Tensor factor_for(const at::Tensor& norm, double max_norm) { return (max_norm / (norm + 1e-6)).clamp_max(1); }

/// Can one fused operation multiply all leaves by the factor?
bool can_fuse(const Tensors& leaves, const at::Tensor& factor) {
  const auto fits = [&](const at::Tensor& leaf) {  // a number without dims would take on the dtype of the factor
    return leaf.device() == factor.device() && (leaf.dim() > 0 || leaf.dtype() == factor.dtype());
  };
  return factor.dim() == 0 && !leaves.empty() && !factor.requires_grad() && !internal::any_transformed(leaves) &&
         !internal::is_transformed(factor) && std::all_of(leaves.begin(), leaves.end(), fits);
}

/// Returns the factor as a leaf is multiplied by it: of its dtype, on its device, with its number of dims.
at::Tensor factor_of(const at::Tensor& leaf, const at::Tensor& factor) {
  std::vector<int64_t> sizes = factor.sizes().vec();
  if (!sizes.empty()) sizes.resize(static_cast<std::size_t>(leaf.dim()), 1);
  return factor.to(leaf.device(), leaf.scalar_type()).reshape(sizes);
}

}  // namespace

TensorDict clip_by_global_norm(const TensorDict& tree, double max_norm, const ClipOptions& options) {
  const Tensors& leaves = tree.values();
  const at::Tensor factor = factor_for(checked_norm("clip_by_global_norm", tree, options), max_norm);
  if (can_fuse(leaves, factor)) return tree.with_values(at::_foreach_mul(leaves, factor));
  return tree.with_values(
      internal::for_each_leaf([&](const at::Tensor& leaf) { return leaf * factor_of(leaf, factor); }, leaves));
}

at::Tensor clip_by_global_norm_(const TensorDict& tree, double max_norm, const ClipOptions& options) {
  const at::NoGradGuard no_grad;
  at::Tensor norm = checked_norm("clip_by_global_norm_", tree, options);
  const at::Tensor factor = factor_for(norm, max_norm);
  const Tensors leaves = distinct(tree.values());
  check_targets("clip_by_global_norm_", tree);
  if (can_fuse(leaves, factor)) {
    at::_foreach_mul_(leaves, factor);
  } else {
    for (const at::Tensor& leaf : leaves) leaf.mul_(factor_of(leaf, factor));
  }
  return norm;
}

}  // namespace graft
