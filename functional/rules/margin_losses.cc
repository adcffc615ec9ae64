// Kernels for the losses of margins and divergences that LibTorch's C++ library maps by a loop over the samples. Some
// are compositions of operators that map well, which LibTorch does not look into under vmap. Others have only fused
// kernels, without a forward-mode derivative: they are plain formulas here. See NOTE: [Kernels on the front key] in
// losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/kl_div_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/margin_ranking_loss_compositeimplicitautograd_dispatch.h>
#include <ATen/ops/triplet_margin_loss_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include "functional/rules/optional_tensor.h"
#include "functional/rules/reduction.h"

namespace graft {
namespace {

using at::Tensor;
using internal::given;
using internal::OptionalTensor;
using internal::reduce;

/// Returns the reduced losses. Not reduced, they have the shape of the targets that each has one of.
Tensor reduce_to(at::IntArrayRef shape, const Tensor& losses, int64_t reduction) {
  return reduction == at::Reduction::None ? losses.reshape(shape) : reduce(losses, reduction);
}

/// Numbers the classes of `scores`, [n, c].
Tensor class_numbers(const Tensor& scores) { return at::arange(scores.size(1), scores.options().dtype(at::kLong)); }

// --- multi_margin_loss

void check_multi_margin(const Tensor& input, const Tensor& target, const at::Scalar& p, const OptionalTensor& weight) {
  TORCH_CHECK(p.equal(1) || p.equal(2), "multi_margin_loss: only p == 1 and p == 2 supported, got p = ", p);
  TORCH_CHECK(input.dim() == 1 || input.dim() == 2, "multi_margin_loss: expected an input of shape [c] or [n, c], got ",
              input.sizes());
  const int64_t samples = input.dim() == 1 ? 1 : input.size(0);
  TORCH_CHECK(target.dim() <= 1 && target.numel() == samples, "multi_margin_loss: expected ", samples,
              " targets for an input of shape ", input.sizes(), ", got targets of shape ", target.sizes());
  TORCH_CHECK(!weight.has_value() || !weight->defined() || weight->sizes() == input.sizes().slice(input.dim() - 1),
              "multi_margin_loss: expected a weight for each of ", input.size(-1), " classes, got ", weight->sizes());
}

Tensor multi_margin_loss_rule(const Tensor& input, const Tensor& target, const at::Scalar& p, const at::Scalar& margin,
                              const OptionalTensor& weight, int64_t reduction) {
  check_multi_margin(input, target, p, weight);
  const Tensor scores = input.dim() == 1 ? input.unsqueeze(0) : input;  // [n, c]
  const Tensor classes = target.reshape({-1, 1});                       // [n, 1]
  Tensor excess = at::relu(scores - scores.gather(1, classes) + margin);
  if (p.equal(2)) excess = excess.square();
  if (given(weight)) excess = excess * weight->gather(0, target.reshape(-1)).unsqueeze(1);
  const Tensor losses = excess.masked_fill(class_numbers(scores) == classes, 0).mean(1);
  return reduce_to(target.sizes(), losses, reduction);
}

// --- multilabel_margin_loss

/// The classes that a sample has: those before the first negative one.
struct Labels {
  Tensor valid;    ///< [n, c], where `classes` holds one
  Tensor classes;  ///< [n, c], 0 where there is none
  Tensor has;      ///< [n, c], by class
};

Labels read_labels(const Tensor& scores, const Tensor& target) {
  Labels labels;
  labels.valid = target.ge(0).cumprod(1).to(at::kBool);
  labels.classes = target.masked_fill(labels.valid.logical_not(), 0);
  const Tensor same = labels.classes.unsqueeze(2) == class_numbers(scores);  // [n, label, class]
  labels.has = same.logical_and(labels.valid.unsqueeze(2)).any(1);
  return labels;
}

Tensor multilabel_margin_loss_rule(const Tensor& input, const Tensor& target, int64_t reduction) {
  TORCH_CHECK(input.dim() == 1 || input.dim() == 2,
              "multilabel_margin_loss: expected an input of shape [c] or [n, c], got ", input.sizes());
  TORCH_CHECK(target.sizes() == input.sizes(), "multilabel_margin_loss: expected targets of the input's shape ",
              input.sizes(), ", got ", target.sizes());
  const Tensor scores = input.dim() == 1 ? input.unsqueeze(0) : input;
  const Labels labels = read_labels(scores, input.dim() == 1 ? target.unsqueeze(0) : target);
  const Tensor of_labels = scores.gather(1, labels.classes).unsqueeze(2);
  const Tensor ignored = labels.valid.logical_not().unsqueeze(2).logical_or(labels.has.unsqueeze(1));
  const Tensor excess = at::relu(1 - of_labels + scores.unsqueeze(1)).masked_fill(ignored, 0);  // [n, label, class]
  return reduce_to(input.sizes().slice(0, input.dim() - 1), excess.sum({1, 2}) / scores.size(1), reduction);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  namespace composite = at::compositeimplicitautograd;
  library.impl("kl_div", composite::kl_div);
  library.impl("margin_ranking_loss", composite::margin_ranking_loss);
  library.impl("triplet_margin_loss", composite::triplet_margin_loss);
  library.impl("multi_margin_loss", multi_margin_loss_rule);
  library.impl("multilabel_margin_loss", multilabel_margin_loss_rule);
}

}  // namespace graft
