#include "examples/digits_ensemble/report.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace digits_ensemble {
namespace {

/// Two members, one right about both digits, one about the first; their mean is right about both.
Report some_report() {
  const at::Tensor probabilities = at::tensor({0.9, 0.1, 0.1, 0.9,  //
                                               0.8, 0.2, 0.6, 0.4})
                                       .view({2, 2, 2});
  return make_report(probabilities, at::tensor({0, 1}, at::kLong), /*seconds=*/1.5);
}

TEST(ReportTest, MeasuresMembersAndEnsemble) {
  const Report report = some_report();
  EXPECT_THAT(report.member_accuracies, testing::ElementsAre(1, 0.5));
  EXPECT_DOUBLE_EQ(report.mean_member_accuracy, 0.75);
  EXPECT_DOUBLE_EQ(report.ensemble_accuracy, 1);
}

TEST(ReportTest, JsonHasTheLoopsKeysOnlyAfterALoop) {
  Report report = some_report();
  const nlohmann::json without = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(without.size(), 5);
  EXPECT_EQ(without.at("mean_member_accuracy"), 0.75);
  EXPECT_EQ(without.at("seconds"), 1.5);

  report.loop = LoopComparison{.ratio = 2, .max_loss_difference_first_epoch = 1e-7, .max_loss_difference = 1e-3};
  const nlohmann::json with = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(with.size(), 8);
  EXPECT_EQ(with.at("loop_ratio"), 2);
  EXPECT_EQ(with.at("max_loss_difference_first_epoch"), 1e-7);
  EXPECT_EQ(with.at("max_loss_difference"), 1e-3);
}

TEST(ReportTest, ColumnsOfTheTableEndAtOnePlace) {
  std::ostringstream table;
  print_table(some_report(), table);
  std::istringstream lines(table.str());
  std::string line;
  std::getline(lines, line);  // an empty line
  std::getline(lines, line);  // the title
  std::getline(lines, line);
  const std::size_t width = line.size();
  EXPECT_THAT(line, testing::StartsWith("  member 0"));
  while (std::getline(lines, line)) EXPECT_EQ(line.size(), width) << line;
}

TEST(CompareTest, TellsTheFirstEpochFromTheRest) {
  const at::Tensor losses = at::zeros({2, 3, 4});
  at::Tensor others = losses.clone();
  others[0][1][2] = -0.25;
  others[1][2][3] = 0.5;
  const LoopComparison comparison =
      compare({.losses = losses, .step_seconds = 2}, {.losses = others, .step_seconds = 5});
  EXPECT_DOUBLE_EQ(comparison.ratio, 2.5);
  EXPECT_DOUBLE_EQ(comparison.max_loss_difference_first_epoch, 0.25);
  EXPECT_DOUBLE_EQ(comparison.max_loss_difference, 0.5);
}

}  // namespace
}  // namespace digits_ensemble
