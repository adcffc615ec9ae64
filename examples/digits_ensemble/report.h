// Report: the results of a run, as a table for people and as JSON for programs.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "examples/digits_ensemble/training.h"

namespace digits_ensemble {

/// How the batched training compares with the loop over members.
struct LoopComparison {
  double ratio;  // time of the loop / time of the batched training
  double max_loss_difference_first_epoch;
  double max_loss_difference;
};

struct Report {
  std::vector<double> member_accuracies;
  double mean_member_accuracy;
  double ensemble_accuracy;
  double nll;
  double ece;
  double seconds;  // training, validation included
  std::optional<LoopComparison> loop;
};

/// Measures members' probabilities on the test digits: ([m, n, 10], [n]).
Report make_report(const at::Tensor& probabilities, const at::Tensor& labels, double seconds);

/// Compares every loss of every member, step by step.
LoopComparison compare(const TrainingLog& batched, const TrainingLog& loop);

/// Prints one row per member and then the ensemble's rows.
void print_table(const Report& report, std::ostream& out);

/// Returns the content of metrics.json.
std::string to_json(const Report& report);

}  // namespace digits_ensemble
