// Distances between all pairs of rows under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/functional/rules/set_ups.h"

namespace graft::testing {
namespace {

constexpr double kNorms[] = {0, 1, 2, 3, std::numeric_limits<double>::infinity()};

/// Rows of which two are equal.
Tensor rows() {
  const Tensor all = random({4, 3});
  all[3].copy_(all[0]);
  return all;
}

TEST(DistancesTest, PdistIsRight) {
  for (const double p : kNorms) {
    check_set_ups({.name = c10::str("pdist ", p),
                   .f = [p](auto& in) { return at::pdist(in[0], p); },
                   .make = [] { return Tensors{rows()}; }});
  }
  check_set_ups({.name = "pdist of one row",
                 .f = [](auto& in) { return at::pdist(in[0]); },
                 .make =
                     [] {
                       return Tensors{random({1, 3})};
                     }});
}

TEST(DistancesTest, CdistIsRight) {
  for (const double p : kNorms) {
    check_set_ups({.name = c10::str("cdist ", p),
                   .f = [p](auto& in) { return at::cdist(in[0], in[1], p); },
                   .make =
                       [] {
                         const Tensor a = rows();
                         return Tensors{a, at::cat({a.slice(0, 0, 1), random({1, 3})})};
                       },
                   .differentiable = 2});
  }
  check_set_ups({.name = "cdist of batches",
                 .f = [](auto& in) { return at::cdist(in[0], in[1]); },
                 .make =
                     [] {
                       return Tensors{random({2, 1, 3, 2}), random({4, 2, 2})};
                     },
                 .differentiable = 2});
}

}  // namespace
}  // namespace graft::testing
