// Quantiles and histograms under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/functional/rules/set_ups.h"

namespace graft::testing {
namespace {

Tensor with_nan(Tensor numbers) {
  numbers.select(0, 1).select(0, 2).fill_(std::numeric_limits<double>::quiet_NaN());
  return numbers;
}

TEST(StatisticsTest, QuantileIsRight) {
  for (const std::string how : {"linear", "lower", "higher", "midpoint", "nearest"}) {
    check_set_ups({.name = "quantile, " + how,
                   .f = [=](auto& in) { return at::quantile(in[0], 0.3, 1, false, how); },
                   .make =
                       [] {
                         return Tensors{random({2, 5})};
                       }});
  }
  for (const bool keepdim : {false, true}) {
    const auto make = [] { return Tensors{random({3, 4}), at::rand({2}, at::kDouble)}; };
    check_set_ups({.name = "quantile of a dim",
                   .f = [=](auto& in) { return at::quantile(in[0], in[1], -2, keepdim); },
                   .make = make,
                   .differentiable = 2});
    check_set_ups({.name = "quantile of all",
                   .f = [=](auto& in) { return at::quantile(in[0], in[1], {}, keepdim); },
                   .make = make,
                   .differentiable = 2});
  }
}

TEST(StatisticsTest, QuantileOfWhatIsNotANumberIsRight) {
  check_set_ups({.name = "quantile",
                 .f = [](auto& in) { return at::quantile(in[0], 0.3, 1).nan_to_num(7); },
                 .make =
                     [] {
                       return Tensors{with_nan(random({3, 4}))};
                     },
                 .differentiable = 0});
}

TEST(StatisticsTest, NanquantileIsRight) {
  check_set_ups({.name = "nanquantile of a dim",
                 .f = [](auto& in) { return at::nanquantile(in[0], 0.3, 1); },
                 .make =
                     [] {
                       return Tensors{with_nan(random({3, 4}))};
                     }});
  check_set_ups({.name = "nanquantile of all",
                 .f = [](auto& in) { return at::nanquantile(in[0], in[1]); },
                 .make =
                     [] {
                       return Tensors{with_nan(random({3, 4})), at::rand({2}, at::kDouble)};
                     },
                 .differentiable = 2});
  check_set_ups({.name = "nanquantile of nothing else",
                 .f = [](auto& in) { return at::nanquantile(in[0], 0.5, 1).nan_to_num(7); },
                 .make =
                     [] {
                       return Tensors{at::full({2, 3}, std::numeric_limits<double>::quiet_NaN(), at::kDouble)};
                     },
                 .differentiable = 0});
}

TEST(StatisticsTest, HistcIsRight) {
  const auto check = [](const std::string& name, const auto& f, const auto& make) {
    check_set_ups({.name = name, .f = f, .make = make, .differentiable = 0});
  };
  const auto numbers = [] { return Tensors{random({4, 5})}; };
  check(
      "histc", [](const Tensors& in) { return at::histc(in[0], 4, -1, 1); }, numbers);
  check(
      "histc of the data's range", [](const Tensors& in) { return at::histc(in[0], 7); }, numbers);
  check(
      "histc of a point", [](const Tensors& in) { return at::histc(in[0], 4, 1, 1); }, numbers);
  check(
      "histc of equal numbers", [](const Tensors& in) { return at::histc(in[0], 4); },
      [] { return Tensors{random({1}).expand({6})}; });
  check(
      "histc on the edges", [](const Tensors& in) { return at::histc(in[0], 4, 0, 8); },
      [] { return Tensors{at::randint(-1, 10, {20}, at::kDouble)}; });
}

TEST(StatisticsTest, BincountIsRightButALoop) {
  // The size of its result depends on the numbers, which one call for all samples cannot read.
  check_set_ups({.name = "bincount",
                 .f = [](auto& in) { return at::bincount(in[0], {}, 5).to(at::kDouble); },
                 .make = [] { return Tensors{at::randint(0, 5, {8}, at::kLong)}; },
                 .differentiable = 0},
                {{"b", "loop: aten::bincount"}});
}

}  // namespace
}  // namespace graft::testing
