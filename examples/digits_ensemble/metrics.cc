#include "examples/digits_ensemble/metrics.h"

#include <ATen/ATen.h>

#include <limits>

namespace digits_ensemble {
namespace {

at::Tensor entropy(const at::Tensor& probabilities) { return -at::xlogy(probabilities, probabilities).sum(-1); }

}  // namespace

at::Tensor accuracy(const at::Tensor& probabilities, const at::Tensor& labels) {
  return probabilities.argmax(-1).eq(labels).to(at::kDouble).mean(-1);
}

double negative_log_likelihood(const at::Tensor& probabilities, const at::Tensor& labels) {
  const at::Tensor of_label = probabilities.gather(-1, labels.unsqueeze(-1));
  return -of_label.clamp_min(std::numeric_limits<float>::min()).log().mean().item<double>();
}

double expected_calibration_error(const at::Tensor& probabilities, const at::Tensor& labels, int64_t bins) {
  const auto [confidence, predicted] = probabilities.to(at::kDouble).max(-1);
  const at::Tensor excess = predicted.eq(labels).to(at::kDouble) - confidence;
  const at::Tensor bin = (confidence * bins).to(at::kLong).clamp(0, bins - 1);
  const at::Tensor excess_of_bin = at::zeros({bins}, excess.options()).index_add(0, bin, excess);
  return excess_of_bin.abs().sum().item<double>() / static_cast<double>(labels.size(0));
}

at::Tensor disagreement(const at::Tensor& probabilities) {
  return entropy(probabilities.mean(0)) - entropy(probabilities).mean(0);
}

}  // namespace digits_ensemble
