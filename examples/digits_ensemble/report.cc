#include "examples/digits_ensemble/report.h"

#include <ATen/ATen.h>
#include <absl/strings/str_format.h>

#include <nlohmann/json.hpp>

#include "examples/digits_ensemble/metrics.h"

namespace digits_ensemble {
namespace {

void print_row(std::ostream& out, const std::string& name, const std::string& value) {
  out << absl::StreamFormat("  %-28s %10s\n", name, value);
}

std::string percent(double share) { return absl::StrFormat("%.2f %%", 100 * share); }

}  // namespace

Report make_report(const at::Tensor& probabilities, const at::Tensor& labels, double seconds) {
  const at::Tensor of_members = accuracy(probabilities, labels);
  const at::Tensor of_ensemble = probabilities.mean(0);
  const double* first = of_members.const_data_ptr<double>();
  return {
      .member_accuracies = {first, first + of_members.numel()},
      .mean_member_accuracy = of_members.mean().item<double>(),
      .ensemble_accuracy = accuracy(of_ensemble, labels).item<double>(),
      .nll = negative_log_likelihood(of_ensemble, labels),
      .ece = expected_calibration_error(of_ensemble, labels),
      .seconds = seconds,
      .loop = std::nullopt,
  };
}

LoopComparison compare(const TrainingLog& batched, const TrainingLog& loop) {
  const at::Tensor difference = (batched.losses - loop.losses).abs();
  return {
      .ratio = loop.step_seconds / batched.step_seconds,
      .max_loss_difference_first_epoch = difference[0].max().item<double>(),
      .max_loss_difference = difference.max().item<double>(),
  };
}

void print_table(const Report& report, std::ostream& out) {
  out << "\nTest digits\n";
  for (std::size_t i = 0; i < report.member_accuracies.size(); ++i) {
    print_row(out, absl::StrFormat("member %d", i), percent(report.member_accuracies[i]));
  }
  out << "  ---------------------------------------\n";
  print_row(out, "mean of the members", percent(report.mean_member_accuracy));
  print_row(out, "ensemble", percent(report.ensemble_accuracy));
  print_row(out, "negative log-likelihood", absl::StrFormat("%.4f", report.nll));
  print_row(out, "expected calibration error", absl::StrFormat("%.4f", report.ece));
  print_row(out, "training time", absl::StrFormat("%.2f s", report.seconds));
  if (report.loop) {
    print_row(out, "loop time / batched time", absl::StrFormat("%.2f", report.loop->ratio));
    print_row(out, "loss difference, 1st epoch", absl::StrFormat("%.1e", report.loop->max_loss_difference_first_epoch));
    print_row(out, "loss difference, all", absl::StrFormat("%.1e", report.loop->max_loss_difference));
  }
}

std::string to_json(const Report& report) {
  nlohmann::ordered_json json = {
      {"ensemble_accuracy", report.ensemble_accuracy},
      {"mean_member_accuracy", report.mean_member_accuracy},
      {"nll", report.nll},
      {"ece", report.ece},
      {"seconds", report.seconds},
  };
  if (report.loop) {
    json["loop_ratio"] = report.loop->ratio;
    json["max_loss_difference_first_epoch"] = report.loop->max_loss_difference_first_epoch;
    json["max_loss_difference"] = report.loop->max_loss_difference;
  }
  return json.dump(2) + "\n";
}

}  // namespace digits_ensemble
