// Metrics of an ensemble's predicted probabilities. Letters: m members, n digits, c classes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace digits_ensemble {

/// Returns the share of digits whose most probable class is the label: ([..., n, c], [n]) -> [...].
at::Tensor accuracy(const at::Tensor& probabilities, const at::Tensor& labels);

/// Returns the mean of -log(probability of the label), in nats: ([n, c], [n]).
double negative_log_likelihood(const at::Tensor& probabilities, const at::Tensor& labels);

/// Returns how far confidence is from accuracy: digits are sorted by the probability of their most probable class into
/// `bins` equal intervals, and |accuracy - mean confidence| is averaged over the bins, weighted by their digits.
/// ([n, c], [n]). Source: Guo et al., On Calibration of Modern Neural Networks, 2017.
double expected_calibration_error(const at::Tensor& probabilities, const at::Tensor& labels, int64_t bins = 15);

/// Returns how much the members disagree on each digit: the entropy of their mean prediction minus the mean of their
/// entropies, in nats, 0 if all say the same: [m, n, c] -> [n].
at::Tensor disagreement(const at::Tensor& probabilities);

}  // namespace digits_ensemble
