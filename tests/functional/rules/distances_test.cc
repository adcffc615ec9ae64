// Distances between all pairs of rows under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "functional/vjp.h"
#include "tests/functional/rules/set_ups.h"
#include "vmap/vmap.h"

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

TEST(DistancesTest, CdistIsRightForManyGradientsOfOneResult) {
  for (const double p : kNorms) {
    const Tensor a = random({4, 3}), b = random({2, 3}), cotangents = random({5, 4, 2});
    const auto f = [p](const Tensor& x, const Tensor& y) { return at::cdist(x, y, p, /*compute_mode=*/2); };
    const auto pullback = vjp(f, a, b).second;
    const auto [of_a, of_b] = vmap([&](const Tensor& cotangent) { return pullback(cotangent); })(cotangents);
    const Tensor leaf_a = a.clone().set_requires_grad(true), leaf_b = b.clone().set_requires_grad(true);
    for (int64_t i = 0; i < cotangents.size(0); ++i) {
      const auto expected = torch::autograd::grad({f(leaf_a, leaf_b)}, {leaf_a, leaf_b}, {cotangents[i]});
      EXPECT_TRUE(of_a[i].allclose(expected[0])) << p;
      EXPECT_TRUE(of_b[i].allclose(expected[1])) << p;
    }
  }
}

}  // namespace
}  // namespace graft::testing
