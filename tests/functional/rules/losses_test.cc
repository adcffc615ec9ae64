// The losses of differences and of class scores under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "tests/functional/rules/set_ups.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

constexpr int64_t kNone = at::Reduction::None, kMean = at::Reduction::Mean, kSum = at::Reduction::Sum;

using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;

void check_loss_of_differences(const std::string& name, const Loss& loss) {
  check_set_ups({.name = name,
                 .f = [&](auto& in) { return loss(2 * in[0], in[1]); },
                 .make =
                     [] {
                       return Tensors{random({5}), random({5})};
                     },
                 .differentiable = 2});
}

TEST(LossesTest, OfDifferencesAreRight) {
  for (const int64_t r : {kNone, kMean, kSum}) {
    check_loss_of_differences("mse_loss", [r](auto& a, auto& b) { return at::mse_loss(a, b, r); });
    check_loss_of_differences("huber_loss", [r](auto& a, auto& b) { return at::huber_loss(a, b, r, 0.7); });
    check_loss_of_differences("smooth_l1_loss", [r](auto& a, auto& b) { return at::smooth_l1_loss(a, b, r, 0.7); });
    check_loss_of_differences("smooth_l1_loss, beta 0",
                              [r](auto& a, auto& b) { return at::smooth_l1_loss(a, b, r, 0); });
    check_set_ups({.name = "soft_margin_loss",
                   .f = [r](auto& in) { return at::soft_margin_loss(in[0], in[1], r); },
                   .make =
                       [] {
                         return Tensors{random({5}), random({5}).sign()};
                       }});
  }
}

/// Checks a loss of 4 classes. One target of each sample is ignored, and one class is there for certain.
void check_loss_of_classes(const std::string& name, std::vector<int64_t> shape, const Loss& loss) {
  const auto make = [shape] {
    const Tensor scores = random(shape);
    const Tensor classes = at::randint(0, 4, scores.select(1, 0).sizes(), at::kLong);
    classes[0].fill_(-100);
    classes[1].fill_(2);
    return Tensors{scores, classes};
  };
  check_set_ups({.name = name, .f = [&](auto& in) { return loss(in[0], in[1]); }, .make = make});
}

TEST(LossesTest, OfClassesAreRight) {
  for (const int64_t r : {kNone, kMean, kSum}) {
    check_loss_of_classes("nll_loss", {3, 4}, [=](auto& x, auto& t) { return at::nll_loss(x, t, {}, r); });
    check_loss_of_classes("cross_entropy_loss", {3, 4},
                          [=](auto& x, auto& t) { return at::cross_entropy_loss(x, t, {}, r); });
  }
}

TEST(LossesTest, OfClassesWithPositionsAreRight) {
  check_loss_of_classes("nll_loss2d", {3, 4, 2, 2}, [](auto& x, auto& t) { return at::nll_loss2d(x, t); });
  check_loss_of_classes("nll_loss_nd", {3, 4, 2}, [](auto& x, auto& t) { return at::nll_loss_nd(x, t); });
  check_loss_of_classes("cross_entropy_loss", {3, 4, 2, 2},
                        [](auto& x, auto& t) { return at::cross_entropy_loss(x, t, {}, kNone); });
}

TEST(LossesTest, OfWeightedAndSmoothedClassesAreRight) {
  const Tensor weight = at::rand({4}, at::kDouble) + 0.5;
  check_loss_of_classes("nll_loss, weighted", {3, 4}, [=](auto& x, auto& t) { return at::nll_loss_nd(x, t, weight); });
  check_loss_of_classes("cross_entropy_loss, smoothed", {3, 4, 2},
                        [](auto& x, auto& t) { return at::cross_entropy_loss(x, t, {}, kMean, -100, 0.2); });
  for (const int64_t r : {kNone, kMean, kSum}) {
    check_loss_of_classes("cross_entropy_loss, weighted and smoothed", {3, 4},
                          [=](auto& x, auto& t) { return at::cross_entropy_loss(x, t, weight, r, -100, 0.2); });
  }
}

TEST(LossesTest, OfClassProbabilitiesAreRight) {
  for (const int64_t r : {kNone, kMean, kSum}) {
    check_set_ups({.name = "cross_entropy_loss of probabilities",
                   .f = [r](auto& in) { return at::cross_entropy_loss(in[0], in[1].softmax(1), {}, r, -100, 0.1); },
                   .make =
                       [] {
                         return Tensors{random({3, 4}), random({3, 4})};
                       },
                   .differentiable = 2});
  }
}

TEST(LossesTest, OfOneSampleWithoutBatchDimAreRight) {
  check_set_ups({.name = "cross_entropy_loss",
                 .f = [](auto& in) { return at::cross_entropy_loss(in[0], in[1]); },
                 .make =
                     [] {
                       return Tensors{random({4}), at::randint(0, 4, {}, at::kLong)};
                     }});
}

TEST(LossesTest, DoNotLetIgnoredTargetsPoisonGradients) {
  Tensor x = at::zeros({1, 2, 3}, at::kDouble);
  x[0][0][0] = -std::numeric_limits<double>::infinity();
  const Tensor t = at::full({1, 2}, 1, at::kLong);
  t[0][0] = -100;
  const Tensor gradient = vmap(grad([](const Tensor& a, const Tensor& b) { return at::nll_loss(a, b); }))(x, t);
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace graft::testing
