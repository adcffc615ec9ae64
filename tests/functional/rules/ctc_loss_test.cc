// ctc_loss under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/functional/rules/set_ups.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

constexpr int64_t kReductions[] = {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum};

/// 6 steps, 3 sequences, 4 classes of which 0 is blank.
Tensor log_probs() { return random({6, 3, 4}).log_softmax(2); }

Tensor lengths(std::vector<int64_t> numbers) { return at::tensor(numbers, at::kLong); }

/// Labels that repeat, in rows of 3, with numbers beyond a target's length that must not be read.
Tensor targets() {
  const Tensor rows = at::randint(1, 4, {3, 3}, at::kLong);
  rows[0][1] = rows[0][0];
  rows[1].slice(0, 1).fill_(-1);
  return rows;
}

TEST(CtcLossTest, OfLengthsInTensorsIsRight) {
  for (const int64_t r : kReductions) {
    check_set_ups({.name = "ctc_loss",
                   .f = [r](auto& in) { return at::ctc_loss(in[0], in[1], in[2], in[3], 0, r); },
                   .make =
                       [] {
                         return Tensors{log_probs(), targets(), lengths({6, 5, 4}), lengths({3, 1, 0})};
                       }});
  }
}

TEST(CtcLossTest, OfLengthsInListsIsRight) {
  check_set_ups({.name = "ctc_loss",
                 .f =
                     [](auto& in) {
                       const std::vector<int64_t> steps = {6, 5, 4}, labels = {3, 1, 2};
                       return at::ctc_loss(in[0], in[1], steps, labels);
                     },
                 .make =
                     [] {
                       return Tensors{log_probs(), targets()};
                     }});
}

TEST(CtcLossTest, OfTargetsOneAfterTheOtherIsRight) {
  const auto make = [] { return Tensors{log_probs(), at::randint(0, 3, {5}, at::kLong)}; };
  const std::vector<int64_t> steps = {6, 5, 6}, labels = {3, 0, 2};
  check_set_ups({.name = "ctc_loss, lists",
                 .f = [&](auto& in) { return at::ctc_loss(in[0], in[1], steps, labels, /*blank=*/3); },
                 .make = make});
  check_set_ups(
      {.name = "ctc_loss, tensors",
       .f = [&](auto& in) { return at::ctc_loss(in[0], in[1], lengths(steps), lengths(labels), /*blank=*/3); },
       .make = make},
      // at::tensor itself refuses to run inside a level of a derivative.
      {{"c", "throws"}, {"r", "throws"}, {"d", "throws"}, {"e1", "throws"}, {"e2", "throws"}});
}

TEST(CtcLossTest, OfOneSequenceIsRight) {
  for (const int64_t r : kReductions) {
    check_set_ups({.name = "ctc_loss",
                   .f =
                       [r](auto& in) {
                         const std::vector<int64_t> steps = {6}, labels = {2};
                         return at::ctc_loss(in[0], in[1], steps, labels, 0, r);
                       },
                   .make =
                       [] {
                         return Tensors{random({6, 4}).log_softmax(1), at::randint(1, 4, {2}, at::kLong)};
                       }});
  }
}

TEST(CtcLossTest, IsRightInsideTwoMaps) {
  const Tensor x = random({2, 4, 6, 3, 4}).log_softmax(-1), t = at::randint(1, 4, {4, 3, 3}, at::kLong);
  const Tensor steps = lengths({6, 5, 4}), labels = lengths({3, 1, 2});
  const auto f = [&](const Tensor& a, const Tensor& b) { return at::ctc_loss(a, b, steps, labels); };
  const auto over_second = vmap(f);
  const Tensor mapped = vmap([&](const Tensor& a) { return over_second(a, t); })(x);
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t k = 0; k < 4; ++k) EXPECT_TRUE(at::allclose(mapped[i][k], f(x[i][k], t[k])));
  }
}

TEST(CtcLossTest, IsInfiniteWhereATargetDoesNotFit) {
  const Tensor x = random({2, 2, 3, 4}).log_softmax(-1), t = at::ones({2, 3, 3}, at::kLong);
  const Tensor short_steps = lengths({2, 2, 0}), labels = lengths({3, 0, 0});
  const auto loss = [&](bool zero_infinity) {
    const auto f = [=](const Tensor& a, const Tensor& b) {
      return at::ctc_loss(a, b, short_steps, labels, 0, at::Reduction::None, zero_infinity);
    };
    const Tensor mapped = vmap(f)(x, t);
    EXPECT_TRUE(at::allclose(mapped, at::stack({f(x[0], t[0]), f(x[1], t[1])})));
    return mapped;
  };
  EXPECT_TRUE(loss(false).select(1, 0).isinf().all().item<bool>());
  EXPECT_TRUE(loss(true).select(1, 0).eq(0).all().item<bool>());
}

TEST(CtcLossTest, HasNoGradientWhereInfinityIsZero) {
  check_set_ups({.name = "ctc_loss",
                 .f =
                     [](auto& in) {
                       return at::ctc_loss(in[0], in[1], in[2], in[3], 0, at::Reduction::Mean, /*zero_infinity=*/true);
                     },
                 .make =
                     [] {
                       return Tensors{log_probs(), targets(), lengths({2, 5, 4}), lengths({3, 1, 2})};
                     }});
}

}  // namespace
}  // namespace graft::testing
