// Kernels for the losses that LibTorch's C++ library maps by a loop over the samples (in Python the same losses have
// decompositions). Each is the plain formula in operators that map well.
//
// NOTE: [Kernels on the front key]
// FuncTorchDynamicLayerFrontMode is active on a thread exactly while a transform runs on it, and comes before every
// level. A kernel on it sees the operator as the function called it, and what the kernel calls passes through all
// levels. So one formula serves vmap, grad and each nesting of them, where a batching rule would never see an operator
// that a grad level has already taken apart. Outside transforms nothing changes.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cross_entropy_loss_compositeimplicitautograd_dispatch.h>
#include <torch/library.h>

#include <vector>

#include "functional/rules/optional_tensor.h"
#include "functional/rules/reduction.h"

namespace graft {
namespace {

using at::Tensor;
using internal::given;
using internal::OptionalTensor;
using internal::reduce;

// --- Losses of a difference

Tensor mse_loss_rule(const Tensor& input, const Tensor& target, int64_t reduction) {
  return reduce((input - target).square(), reduction);
}

/// Returns `d^2 / 2` up to `delta` and `delta (d - delta / 2)` beyond, without a branch that could poison a gradient.
Tensor huber(const Tensor& input, const Tensor& target, double delta) {
  const Tensor distance = (input - target).abs();
  const Tensor within = distance.clamp_max(delta);
  return within * (distance - 0.5 * within);
}

Tensor huber_loss_rule(const Tensor& input, const Tensor& target, int64_t reduction, double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
  return reduce(huber(input, target, delta), reduction);
}

Tensor smooth_l1_loss_rule(const Tensor& input, const Tensor& target, int64_t reduction, double beta) {
  TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
  if (beta == 0) return reduce((input - target).abs(), reduction);
  return reduce(huber(input, target, beta) / beta, reduction);
}

Tensor soft_margin_loss_rule(const Tensor& input, const Tensor& target, int64_t reduction) {
  // log(1 + exp(x)) = x to the last bit of a double above 40.
  return reduce(at::softplus(-input * target, /*beta=*/1, /*threshold=*/40), reduction);
}

// --- Losses of class scores

/// Returns the dim of `scores` that counts classes.
int64_t class_dim(const Tensor& scores) { return scores.dim() == 1 ? 0 : 1; }

/// Class indices, made safe to gather with.
struct Targets {
  Tensor ignored;  ///< Where the loss does not count.
  Tensor classes;  ///< The class, 0 where it is ignored.
  Tensor weights;  ///< The class weight, 0 where it is ignored; undefined if
                   ///< the classes have no weights.
};

void check_shapes(const Tensor& scores, const Tensor& target, const OptionalTensor& weight) {
  auto expected = scores.sizes().vec();
  expected.erase(expected.begin() + class_dim(scores));
  TORCH_CHECK_VALUE(target.sizes() == expected, "nll_loss: expected a target of shape ", at::IntArrayRef(expected),
                    " for scores of shape ", scores.sizes(), ", got ", target.sizes());
  TORCH_CHECK(!given(weight) || (weight->dim() == 1 && weight->numel() == scores.size(class_dim(scores))),
              "nll_loss: weight tensor should be defined either for all ", scores.size(class_dim(scores)),
              " classes or no classes but got weight tensor of shape: ", weight->sizes());
}

Targets read_targets(const Tensor& scores, const Tensor& target, const OptionalTensor& weight, int64_t ignore_index) {
  check_shapes(scores, target, weight);
  const Tensor classes = target.scalar_type() == at::kLong ? target : target.to(at::kLong);
  Targets targets;
  targets.ignored = classes.eq(ignore_index);
  targets.classes = classes.masked_fill(targets.ignored, 0);
  if (given(weight)) {
    const Tensor picked = weight->gather(0, targets.classes.reshape(-1)).reshape(targets.classes.sizes());
    targets.weights = picked.masked_fill(targets.ignored, 0);
  }
  return targets;
}

/// Returns the negated score of the target class, weighted. Ignored ones are replaced, not multiplied by 0: they may
/// hold infinities.
Tensor target_losses(const Tensor& scores, const Targets& targets) {
  const int64_t dim = class_dim(scores);
  Tensor losses = -scores.gather(dim, targets.classes.unsqueeze(dim)).squeeze(dim);
  if (targets.weights.defined()) losses = losses * targets.weights;
  return losses.masked_fill(targets.ignored, 0);
}

/// Returns the negated, weighted sum of the scores of all classes.
Tensor all_class_losses(const Tensor& scores, const Targets& targets, const OptionalTensor& weight) {
  const int64_t dim = class_dim(scores);
  Tensor weighted = scores;
  if (given(weight)) {
    std::vector<int64_t> shape(scores.dim(), 1);
    shape[dim] = scores.size(dim);
    weighted = scores * weight->reshape(shape);
  }
  return -weighted.sum(dim).masked_fill(targets.ignored, 0);
}

/// Reduces the losses; the mean is over the weights of the targets that count.
Tensor reduce_weighted(const Tensor& losses, const Targets& targets, int64_t reduction) {
  if (reduction != at::Reduction::Mean) return reduce(losses, reduction);
  const Tensor total = targets.weights.defined() ? targets.weights.sum() : targets.ignored.logical_not().sum();
  return losses.sum() / total;
}

Tensor nll_loss_rule(const Tensor& scores, const Tensor& target, const OptionalTensor& weight, int64_t reduction,
                     int64_t ignore_index) {
  const Targets targets = read_targets(scores, target, weight, ignore_index);
  return reduce_weighted(target_losses(scores, targets), targets, reduction);
}

/// Cross-entropy against class indices, of which a part `smoothing` is spread over all classes.
Tensor smoothed_nll_loss(const Tensor& scores, const Tensor& target, const OptionalTensor& weight, int64_t reduction,
                         int64_t ignore_index, double smoothing) {
  const Targets targets = read_targets(scores, target, weight, ignore_index);
  const auto classes = static_cast<double>(scores.size(class_dim(scores)));
  const Tensor losses = (1 - smoothing) * target_losses(scores, targets) +
                        (smoothing / classes) * all_class_losses(scores, targets, weight);
  return reduce_weighted(losses, targets, reduction);
}

Tensor cross_entropy_loss_rule(const Tensor& input, const Tensor& target, const OptionalTensor& weight,
                               int64_t reduction, int64_t ignore_index, double label_smoothing) {
  TORCH_CHECK(label_smoothing >= 0 && label_smoothing <= 1,
              "label_smoothing must be between 0.0 and 1.0. Got: ", label_smoothing);
  if (input.sizes() == target.sizes()) {
    // Class probabilities: LibTorch's own formula maps well.
    return at::compositeimplicitautograd::cross_entropy_loss(input, target, weight, reduction, ignore_index,
                                                             label_smoothing);
  }
  const Tensor scores = at::log_softmax(input, class_dim(input));
  if (label_smoothing == 0) return nll_loss_rule(scores, target, weight, reduction, ignore_index);
  return smoothed_nll_loss(scores, target, weight, reduction, ignore_index, label_smoothing);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("mse_loss", mse_loss_rule);
  library.impl("huber_loss", huber_loss_rule);
  library.impl("smooth_l1_loss", smooth_l1_loss_rule);
  library.impl("soft_margin_loss", soft_margin_loss_rule);
  library.impl("nll_loss", nll_loss_rule);
  library.impl("nll_loss2d", nll_loss_rule);
  library.impl("nll_loss_nd", nll_loss_rule);
  library.impl("cross_entropy_loss", cross_entropy_loss_rule);
}

}  // namespace graft
