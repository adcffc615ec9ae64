// The losses of margins and divergences under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/functional/rules/set_ups.h"

namespace graft::testing {
namespace {

constexpr int64_t kReductions[] = {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum};

TEST(MarginLossesTest, KlDivIsRight) {
  const auto make = [] { return Tensors{random({2, 3}), random({2, 3}).softmax(1)}; };
  for (const int64_t r : kReductions) {
    check_set_ups({.name = "kl_div",
                   .f = [r](auto& in) { return at::kl_div(in[0], in[1], r); },
                   .make = make,
                   .differentiable = 2});
  }
  check_set_ups({.name = "kl_div of logarithms",
                 .f = [](auto& in) { return at::kl_div(in[0], in[1], at::Reduction::Sum, /*log_target=*/true); },
                 .make = make,
                 .differentiable = 2});
}

TEST(MarginLossesTest, MarginRankingLossIsRight) {
  for (const int64_t r : kReductions) {
    check_set_ups({.name = "margin_ranking_loss",
                   .f = [r](auto& in) { return at::margin_ranking_loss(in[0], in[1], in[2], 0.3, r); },
                   .make =
                       [] {
                         return Tensors{random({4}), random({4}), random({4}).sign()};
                       },
                   .differentiable = 2});
  }
}

TEST(MarginLossesTest, TripletMarginLossIsRight) {
  for (const bool swap : {false, true}) {
    check_set_ups({.name = "triplet_margin_loss",
                   .f = [swap](auto& in) { return at::triplet_margin_loss(in[0], in[1], in[2], 1, 2, 1e-6, swap); },
                   .make =
                       [] {
                         return Tensors{random({3, 4}), random({3, 4}), random({3, 4})};
                       },
                   .differentiable = 3});
  }
}

TEST(MarginLossesTest, MultiMarginLossIsRight) {
  const auto make = [] { return Tensors{random({3, 4}), at::randint(0, 4, {3}, at::kLong)}; };
  const Tensor weight = at::rand({4}, at::kDouble) + 0.5;
  for (const int64_t r : kReductions) {
    check_set_ups({.name = "multi_margin_loss",
                   .f = [r](auto& in) { return at::multi_margin_loss(in[0], in[1], 1, 1, {}, r); },
                   .make = make});
    check_set_ups({.name = "multi_margin_loss, squared and weighted",
                   .f = [=](auto& in) { return at::multi_margin_loss(in[0], in[1], 2, 0.5, weight, r); },
                   .make = make});
    for (const auto& shape : {std::vector<int64_t>{}, std::vector<int64_t>{1}}) {
      check_set_ups({.name = "multi_margin_loss of one sample",
                     .f = [r](auto& in) { return at::multi_margin_loss(in[0], in[1], 1, 1, {}, r); },
                     .make =
                         [shape] {
                           return Tensors{random({4}), at::randint(0, 4, shape, at::kLong)};
                         }});
    }
  }
}

TEST(MarginLossesTest, MultilabelMarginLossIsRight) {
  for (const int64_t r : kReductions) {
    const auto f = [r](const Tensors& in) { return at::multilabel_margin_loss(in[0], in[1], r); };
    const auto of_many = [] {
      const Tensor labels = random({3, 5}).argsort();
      labels.slice(1, 3).fill_(-1);
      labels[1].fill_(-1);
      labels[2][1] = -1;  // what follows does not count
      return Tensors{random({3, 5}), labels};
    };
    check_set_ups({.name = "multilabel_margin_loss", .f = f, .make = of_many});
    const auto of_one = [] { return Tensors{random({4}), at::tensor({1, 3, -1, 0}, at::kLong)}; };
    check_set_ups({.name = "multilabel_margin_loss of one sample", .f = f, .make = of_one});
  }
}

}  // namespace
}  // namespace graft::testing
