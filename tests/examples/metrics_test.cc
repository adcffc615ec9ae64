#include "examples/digits_ensemble/metrics.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace digits_ensemble {
namespace {

/// Two members, three digits, two classes.
at::Tensor members() {
  return at::tensor({0.9, 0.1, 0.6, 0.4, 0.2, 0.8,  //
                     0.7, 0.3, 0.2, 0.8, 0.2, 0.8})
      .view({2, 3, 2});
}

at::Tensor labels() { return at::tensor({0, 0, 1}, at::kLong); }

TEST(AccuracyTest, CountsPerMember) {
  const at::Tensor share = accuracy(members(), labels());
  EXPECT_DOUBLE_EQ(share[0].item<double>(), 1);
  EXPECT_DOUBLE_EQ(share[1].item<double>(), 2.0 / 3);
}

TEST(AccuracyTest, OfTheMeanIsTheEnsembles) {  // means of class 0: 0.8, 0.4, 0.2
  EXPECT_DOUBLE_EQ(accuracy(members().mean(0), labels()).item<double>(), 2.0 / 3);
}

TEST(NegativeLogLikelihoodTest, IsTheMeanLogOfTheLabelsProbability) {
  const double expected = -(std::log(0.8) + std::log(0.4) + std::log(0.8)) / 3;
  EXPECT_NEAR(negative_log_likelihood(members().mean(0), labels()), expected, 1e-6);
}

TEST(NegativeLogLikelihoodTest, StaysFiniteForAProbabilityOfZero) {
  const double nll = negative_log_likelihood(at::tensor({1.0, 0.0}).view({1, 2}), at::tensor({1}, at::kLong));
  EXPECT_TRUE(std::isfinite(nll));
  EXPECT_GT(nll, 80);
}

TEST(ExpectedCalibrationErrorTest, WeighsEachBinsGap) {
  // Of two bins all three confidences, 0.8, 0.6 and 0.8, are in the upper one: mean 2.2 / 3, accuracy 2 / 3.
  EXPECT_NEAR(expected_calibration_error(members().mean(0), labels(), /*bins=*/2), 0.2 / 3, 1e-6);
  // Of fifteen, 0.8 (twice, both right) and 0.6 (wrong) are in two: (0.4 + 0.6) / 3.
  EXPECT_NEAR(expected_calibration_error(members().mean(0), labels()), 1.0 / 3, 1e-6);
}

TEST(ExpectedCalibrationErrorTest, IsZeroForCertaintyThatIsRight) {
  EXPECT_EQ(expected_calibration_error(at::eye(4), at::arange(4)), 0);
}

TEST(DisagreementTest, IsZeroWhereMembersAgreeAndLogTwoWhereTwoAreSureOfDifferentClasses) {
  const at::Tensor two = at::tensor({1.0, 0.0, 0.3, 0.7,  //
                                     0.0, 1.0, 0.3, 0.7})
                             .view({2, 2, 2});
  const at::Tensor score = disagreement(two);
  EXPECT_NEAR(score[0].item<double>(), std::log(2), 1e-6);
  EXPECT_NEAR(score[1].item<double>(), 0, 1e-6);
}

}  // namespace
}  // namespace digits_ensemble
