// Kernels for ctc_loss, which LibTorch maps by a loop over the samples and does not differentiate forward. Its fused
// operators get batching rules that run them once on the sequences of all samples. Under forward mode the loss is a
// formula: the sum over all alignments as operators on all sequences at once. See NOTE: [Kernels on the front key] in
// losses.cc.
//
// Shapes: t time steps, n sequences, c classes, s labels of a target, a = 2 s + 1 states of an alignment: the labels
// with blanks between and around them.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

#include "functional/rules/front_key.h"
#include "functional/rules/reduction.h"

namespace graft {
namespace {

using at::Tensor;
using internal::reduce;

/// The logarithm of no chance. It is finite: sums of infinities have derivatives that are not numbers.
constexpr double kNever = -1e30;

struct Sequences {
  Tensor log_probs;       ///< [t, n, c]
  Tensor targets;         ///< [n, s], blank beyond a target's length
  Tensor input_lengths;   ///< [n]
  Tensor target_lengths;  ///< [n]
};

/// Returns the targets that are written one after the other, each in a row of its own, [n, s].
Tensor rows_of(const Tensor& targets, const Tensor& lengths, int64_t labels) {
  if (labels == 0) return targets.new_zeros({lengths.size(0), 0});
  const Tensor begin = (lengths.cumsum(0) - lengths).unsqueeze(1);
  const Tensor at = (begin + at::arange(labels, lengths.options())).clamp_max(targets.size(0) - 1);
  return targets.gather(0, at.reshape(-1)).reshape(at.sizes());
}

/// \param labels the length of the longest target, or more
Sequences read_sequences(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                         const Tensor& target_lengths, int64_t labels, int64_t blank) {
  TORCH_CHECK(log_probs.dim() == 2 || log_probs.dim() == 3,
              "ctc_loss: expected log_probs of shape [t, n, c] or [t, c], ", "got ", log_probs.sizes());
  TORCH_CHECK(targets.dim() == 1 || targets.dim() == 2,
              "ctc_loss: expected targets of shape [n, s] or [sum of lengths]", ", got ", targets.sizes());
  TORCH_CHECK(blank >= 0 && blank < log_probs.size(-1), "ctc_loss: blank must be in label range [0, ",
              log_probs.size(-1), "), got ", blank);
  Sequences all;
  all.log_probs = log_probs.dim() == 2 ? log_probs.unsqueeze(1) : log_probs;
  all.input_lengths = input_lengths.to(at::kLong).reshape(-1);
  all.target_lengths = target_lengths.to(at::kLong).reshape(-1);
  const int64_t sequences = all.log_probs.size(1);
  TORCH_CHECK(all.input_lengths.size(0) == sequences && all.target_lengths.size(0) == sequences,
              "ctc_loss: expected lengths of ", sequences, " inputs and targets, got ", all.input_lengths.size(0),
              " and ", all.target_lengths.size(0));
  const Tensor rows = targets.to(at::kLong);
  all.targets = targets.dim() == 2 ? rows : rows_of(rows, all.target_lengths, labels);
  const Tensor numbers = at::arange(all.targets.size(1), all.targets.options());
  all.targets = all.targets.masked_fill(numbers >= all.target_lengths.unsqueeze(1), blank);
  return all;
}

/// Returns the class of each state, [n, a].
Tensor states_of(const Tensor& targets, int64_t blank) {
  const Tensor pairs = at::stack({at::full_like(targets, blank), targets}, 2).flatten(1);
  return at::constant_pad_nd(pairs, {0, 1}, blank);
}

/// Moves the scores of states, [n, a], on by `steps` states.
Tensor moved_on(const Tensor& scores, int64_t steps) {
  return at::constant_pad_nd(scores, {steps, 0}, kNever).slice(1, 0, scores.size(1));
}

/// Returns the score of the state with the number `state`, [n]; none before the first.
Tensor score_of(const Tensor& scores, const Tensor& state) {
  return scores.gather(1, state.clamp_min(0).unsqueeze(1)).squeeze(1).masked_fill(state < 0, kNever);
}

/// Returns the logarithm of the chance of each target, [n].
Tensor log_chances(const Sequences& all, int64_t blank) {
  const Tensor states = states_of(all.targets, blank);
  const Tensor numbers = at::arange(states.size(1), states.options());
  // A blank between two labels may be left out if they differ.
  const Tensor before = at::constant_pad_nd(states, {2, 0}, blank).slice(1, 0, states.size(1));
  const Tensor must_not_skip = (states == blank).logical_or(states == before);
  std::vector<int64_t> shape = {all.log_probs.size(0), states.size(0), states.size(1)};
  const std::vector<Tensor> emitted = all.log_probs.gather(2, states.expand(shape)).unbind(0);
  // Before the first step as if in the first blank: from there the first step reaches the first two states.
  Tensor scores = at::zeros_like(states, all.log_probs.options()).masked_fill(numbers > 0, kNever);
  for (std::size_t t = 0; t < emitted.size(); ++t) {
    const Tensor skipping = moved_on(scores, 2).masked_fill(must_not_skip, kNever);
    const Tensor next = at::stack({scores, moved_on(scores, 1), skipping}).logsumexp(0) + emitted[t];
    scores = at::where((all.input_lengths > static_cast<int64_t>(t)).unsqueeze(1), next, scores);
  }
  const Tensor last = 2 * all.target_lengths;
  return at::logaddexp(score_of(scores, last), score_of(scores, last - 1));
}

/// Returns 0, whose gradient is the probabilities. LibTorch's gradient is that of scores before a log_softmax, which
/// differs from the gradient of the log-probabilities by this.
Tensor gradient_of_scores(const Sequences& all) {
  const Tensor steps = at::arange(all.log_probs.size(0), all.input_lengths.options()).unsqueeze(1);
  const Tensor chances = all.log_probs.exp().sum(2).masked_fill(steps >= all.input_lengths, 0).sum(0);
  return chances - chances.detach();
}

Tensor losses_by_formula(const Sequences& all, int64_t blank) {
  const Tensor losses = gradient_of_scores(all) - log_chances(all, blank);
  return losses.masked_fill(losses > -kNever / 2, std::numeric_limits<double>::infinity());
}

/// What becomes of the losses of all sequences, [n].
struct Ending {
  int64_t reduction;
  bool zero_infinity;
  bool has_batch;  ///< the log-probabilities have a dim n
};

Tensor ended(Tensor losses, const Sequences& all, const Ending& ending) {
  if (ending.zero_infinity) losses = losses.masked_fill(losses.isinf(), 0);
  if (ending.reduction == at::Reduction::Mean) return (losses / all.target_lengths.clamp_min(1)).mean();
  if (ending.reduction == at::Reduction::None && !ending.has_batch) return losses.squeeze(0);
  return reduce(losses, ending.reduction);
}

Tensor ctc_loss_rule(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                     const Tensor& target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  // How long the longest target is cannot be read from lengths that are mapped.
  const int64_t labels = targets.size(-1);
  const Sequences all = read_sequences(log_probs, targets, input_lengths, target_lengths, labels, blank);
  const Tensor losses = internal::forward_mode_is_on()
                            ? losses_by_formula(all, blank)
                            : std::get<0>(at::_ctc_loss(all.log_probs, all.targets, all.input_lengths,
                                                        all.target_lengths, blank, zero_infinity));
  return ended(losses, all, {reduction, zero_infinity, log_probs.dim() == 3});
}

/// Returns `list` as a tensor. (at::tensor writes to storage, which a tensor inside a transform may lack.)
Tensor to_tensor(at::IntArrayRef list, const Tensor& like) {
  std::vector<Tensor> numbers;
  for (const int64_t number : list) numbers.push_back(at::scalar_tensor(number, like.options().dtype(at::kLong)));
  return numbers.empty() ? at::empty({0}, like.options().dtype(at::kLong)) : at::stack(numbers);
}

Tensor ctc_loss_of_lists_rule(const Tensor& log_probs, const Tensor& targets, at::IntArrayRef input_lengths,
                              at::IntArrayRef target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  const int64_t labels = target_lengths.empty() ? 0 : *std::max_element(target_lengths.begin(), target_lengths.end());
  const Sequences all = read_sequences(log_probs, targets, to_tensor(input_lengths, targets),
                                       to_tensor(target_lengths, targets), labels, blank);
  const Tensor losses =
      internal::forward_mode_is_on()
          ? losses_by_formula(all, blank)
          : std::get<0>(at::_ctc_loss(all.log_probs, all.targets, input_lengths, target_lengths, blank, zero_infinity));
  return ended(losses, all, {reduction, zero_infinity, log_probs.dim() == 3});
}

// --- Batching rules: the sequences of all samples are those of one call

/// The innermost vmap while a batching rule runs.
class CurrentVmap {
 public:
  CurrentVmap() : guard_(c10::DispatchKey::FuncTorchBatched) {
    const auto layer = at::functorch::maybeCurrentDynamicLayer();
    number_ = layer->layerId();
    size_ = layer->batchSize().expect_int();
  }

  /// Puts the samples into dim `dim`, before what that dim counts.
  Tensor merged(const Tensor& tensor, int64_t dim) const {
    const auto* batched = at::functorch::maybeGetBatchedImpl(tensor);
    if (batched != nullptr && batched->level() == number_) {
      return batched->value().movedim(batched->bdim(), dim).flatten(dim, dim + 1);
    }
    std::vector<int64_t> shape = tensor.sizes().vec();
    shape.insert(shape.begin() + dim, size_);
    return tensor.unsqueeze(dim).expand(shape).flatten(dim, dim + 1);
  }

  std::vector<int64_t> merged(at::IntArrayRef list) const {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < size_; ++i) all.insert(all.end(), list.begin(), list.end());
    return all;
  }

  /// Takes the samples out of dim `dim` again.
  Tensor split(const Tensor& tensor, int64_t dim) const {
    const Tensor by_sample = tensor.unflatten(dim, {size_, tensor.size(dim) / size_});
    return at::functorch::makeBatched(by_sample, dim, number_);
  }

 private:
  const c10::impl::ExcludeDispatchKeyGuard guard_;
  int64_t number_, size_;
};

Tensor merged_lengths(const CurrentVmap& vmap, const Tensor& lengths) { return vmap.merged(lengths, 0); }

std::vector<int64_t> merged_lengths(const CurrentVmap& vmap, at::IntArrayRef lengths) { return vmap.merged(lengths); }

/// \tparam Lengths a tensor or a list
template <typename Lengths>
std::tuple<Tensor, Tensor> batched_ctc_loss(const Tensor& log_probs, const Tensor& targets, Lengths input_lengths,
                                            Lengths target_lengths, int64_t blank, bool zero_infinity) {
  const CurrentVmap vmap;
  const auto [losses, log_alpha] =
      at::_ctc_loss(vmap.merged(log_probs, 1), vmap.merged(targets, 0), merged_lengths(vmap, input_lengths),
                    merged_lengths(vmap, target_lengths), blank, zero_infinity);
  return {vmap.split(losses, 0), vmap.split(log_alpha, 0)};
}

template <typename Lengths>
Tensor batched_ctc_loss_backward(const Tensor& gradient, const Tensor& log_probs, const Tensor& targets,
                                 Lengths input_lengths, Lengths target_lengths, const Tensor& losses,
                                 const Tensor& log_alpha, int64_t blank, bool zero_infinity) {
  const CurrentVmap vmap;
  const Tensor of_log_probs = at::_ctc_loss_backward(
      vmap.merged(gradient, 0), vmap.merged(log_probs, 1), vmap.merged(targets, 0), merged_lengths(vmap, input_lengths),
      merged_lengths(vmap, target_lengths), vmap.merged(losses, 0), vmap.merged(log_alpha, 0), blank, zero_infinity);
  return vmap.split(of_log_probs, 1);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("ctc_loss.Tensor", ctc_loss_rule);
  library.impl("ctc_loss.IntList", ctc_loss_of_lists_rule);
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, library) {
  library.impl("_ctc_loss", batched_ctc_loss<at::IntArrayRef>);
  library.impl("_ctc_loss.Tensor", batched_ctc_loss<const Tensor&>);
  library.impl("_ctc_loss_backward", batched_ctc_loss_backward<at::IntArrayRef>);
  library.impl("_ctc_loss_backward.Tensor", batched_ctc_loss_backward<const Tensor&>);
}

}  // namespace graft
