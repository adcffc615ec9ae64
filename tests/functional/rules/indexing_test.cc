// Operators that pick, place and mask elements, under every transform.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/functional/rules/set_ups.h"

namespace graft::testing {
namespace {

Tensor mask(at::IntArrayRef sizes) { return random(sizes) > 0; }

/// In-place operators are refused where only what they read is mapped: nothing else can hold the results. So they are
/// where a tangent is not mapped and the input is.
const Outcomes kInPlace = {{"b2", "throws: vmap: "}, {"e2", "throws: vmap: "}};

TEST(IndexingTest, MaskedFillIsRight) {
  const auto make = [] { return Tensors{random({2, 3}), random({}), mask({3})}; };
  check_set_ups({.name = "masked_fill",
                 .f = [](auto& in) { return at::masked_fill(in[0], in[2], in[1]); },
                 .make = make,
                 .differentiable = 2});
  check_set_ups({.name = "masked_fill_",
                 .f = [](auto& in) { return in[0].clone().masked_fill_(in[2], in[1]); },
                 .make = make,
                 .differentiable = 2},
                kInPlace);
  check_set_ups({.name = "masked_fill with a larger mask",
                 .f = [](auto& in) { return at::masked_fill(in[0], in[1], at::scalar_tensor(2, at::kLong)); },
                 .make =
                     [] {
                       return Tensors{random({3}), mask({2, 3})};
                     }});
}

TEST(IndexingTest, MaskedScatterIsRight) {
  const auto make = [] { return Tensors{random({2, 3}), random({7}), mask({2, 3})}; };
  check_set_ups({.name = "masked_scatter",
                 .f = [](auto& in) { return at::masked_scatter(in[0], in[2], in[1]); },
                 .make = make,
                 .differentiable = 2});
  check_set_ups({.name = "masked_scatter_",
                 .f = [](auto& in) { return in[0].clone().masked_scatter_(in[2], in[1]); },
                 .make = make,
                 .differentiable = 2},
                kInPlace);
  check_set_ups({.name = "masked_scatter with a smaller mask",
                 .f = [](auto& in) { return at::masked_scatter(in[0], in[2], in[1]); },
                 .make =
                     [] {
                       return Tensors{random({2, 3}), random({6}), mask({3})};
                     },
                 .differentiable = 2});
  check_set_ups({.name = "combinations",
                 .f = [](auto& in) { return at::combinations(in[0]); },
                 .make = [] { return Tensors{random({4})}; }});
}

TEST(IndexingTest, TakeAndPutAreRight) {
  const auto index = [](bool twice = true) {
    return at::tensor({3, -1, 0, twice ? -6 : -5}, at::kLong).index_select(0, at::randperm(4));
  };
  check_set_ups({.name = "take",
                 .f = [](auto& in) { return at::take(in[0], in[1]); },
                 .make =
                     [&] {
                       return Tensors{random({2, 3}), index().reshape({2, 2})};
                     }});
  for (const bool accumulate : {false, true}) {
    const auto make = [&] { return Tensors{random({2, 3}), random({2, 2}), index(accumulate).reshape({2, 2})}; };
    check_set_ups({.name = "put",
                   .f = [=](auto& in) { return at::put(in[0].t(), in[2], in[1], accumulate); },
                   .make = make,
                   .differentiable = 2});
    check_set_ups({.name = "put_",
                   .f = [=](auto& in) { return in[0].clone().put_(in[2], in[1], accumulate); },
                   .make = make,
                   .differentiable = 2},
                  kInPlace);
  }
}

TEST(IndexingTest, ScatterOfAValueInPlaceIsRight) {
  check_set_ups({.name = "scatter_",
                 .f = [](auto& in) { return in[0].clone().scatter_(1, in[1], 1.5); },
                 .make =
                     [] {
                       return Tensors{random({2, 3}), at::randint(0, 3, {2, 1}, at::kLong)};
                     }},
                kInPlace);
}

TEST(IndexingTest, IndexReduceIsRight) {
  const auto make = [] { return Tensors{random({2, 3}), random({2, 4}), at::randint(0, 3, {4}, at::kLong)}; };
  for (const std::string reduce : {"mean", "amax", "amin", "prod"}) {
    for (const bool include_self : {true, false}) {
      check_set_ups({.name = "index_reduce, " + reduce,
                     .f = [=](auto& in) { return at::index_reduce(in[0], -1, in[2], in[1], reduce, include_self); },
                     .make = make,
                     .differentiable = 2});
    }
  }
  check_set_ups({.name = "index_reduce_",
                 .f = [](auto& in) { return in[0].clone().index_reduce_(1, in[2], in[1], "mean"); },
                 .make = make,
                 .differentiable = 2},
                kInPlace);
}

TEST(IndexingTest, ScatterReduceIsRight) {
  const auto make = [] { return Tensors{random({3, 4}), random({5, 4}), at::randint(0, 3, {4, 2}, at::kLong)}; };
  for (const std::string reduce : {"sum", "mean", "amax", "amin", "prod"}) {
    for (const bool include_self : {true, false}) {
      check_set_ups({.name = "scatter_reduce, " + reduce,
                     .f = [=](auto& in) { return at::scatter_reduce(in[0], 0, in[2], in[1], reduce, include_self); },
                     .make = make,
                     .differentiable = 2});
    }
  }
  check_set_ups({.name = "scatter_reduce of one dim",
                 .f = [](auto& in) { return at::scatter_reduce(in[0], -1, in[2], in[1], "prod"); },
                 .make =
                     [] {
                       return Tensors{random({3}), random({4}), at::randint(0, 3, {4}, at::kLong)};
                     },
                 .differentiable = 2});
  check_set_ups({.name = "scatter_reduce into a number",
                 .f = [](auto& in) { return at::scatter_reduce(in[0], 0, in[2], in[1], "prod"); },
                 .make =
                     [] {
                       return Tensors{random({}), random({}), at::zeros({}, at::kLong)};
                     },
                 .differentiable = 2});
}

TEST(IndexingTest, UnfoldIsRight) {
  check_set_ups({.name = "unfold",
                 .f = [](auto& in) { return in[0].unfold(0, 3, 2) * in[0].unfold(-2, 3, 2).sin(); },
                 .make =
                     [] {
                       return Tensors{random({6, 2})};
                     }});
  check_set_ups({.name = "unfold of a number",
                 .f = [](auto& in) { return in[0].unfold(0, 1, 1).sin(); },
                 .make = [] { return Tensors{random({})}; }});
}

TEST(IndexingTest, IsinIsRight) {
  for (const bool invert : {false, true}) {
    check_set_ups({.name = "isin",
                   .f = [=](auto& in) { return at::isin(in[0], in[1], false, invert).to(at::kDouble); },
                   .make =
                       [] {
                         return Tensors{at::randint(0, 5, {2, 4}), at::randint(0, 5, {2, 2})};
                       },
                   .differentiable = 0});
  }
}

TEST(IndexingTest, IsinOfOtherTypesIsRight) {
  const auto f = [](const Tensors& in) { return at::isin(in[0], in[1]).to(at::kDouble); };
  check_set_ups({.name = "isin of two types",
                 .f = f,
                 .make =
                     [] {
                       return Tensors{at::randint(0, 5, {2, 4}, at::kLong), at::randint(0, 5, {3}, at::kFloat)};
                     },
                 .differentiable = 0});
  check_set_ups({.name = "isin of nothing",
                 .f = f,
                 .make =
                     [] {
                       return Tensors{random({4}), random({0})};
                     },
                 .differentiable = 0});
}

TEST(IndexingTest, TrianglesInPlaceAreRight) {
  const auto make = [] { return Tensors{random({3, 4})}; };
  check_set_ups({.name = "tril_", .f = [](auto& in) { return in[0].sin().tril_(-1); }, .make = make});
  check_set_ups({.name = "triu_", .f = [](auto& in) { return in[0].sin().triu_(1); }, .make = make});
  check_set_ups({.name = "linalg_householder_product",
                 .f = [](auto& in) { return at::linalg_householder_product(in[0], in[1]); },
                 .make =
                     [] {
                       return Tensors{random({4, 2}), random({2})};
                     },
                 .differentiable = 2},
                {{"h4", "wrong by"}});  // by LibTorch's derivative of a derivative
}

TEST(IndexingTest, FillDiagonalIsRight) {
  for (const auto& shape : {std::vector<int64_t>{3, 4}, {7, 3}, {8, 3}, {2, 2, 2}, {0, 3}}) {
    for (const bool wrap : {false, true}) {
      check_set_ups({.name = "fill_diagonal_",
                     .f = [=](auto& in) { return in[0].sin().fill_diagonal_(0.5, wrap); },
                     .make = [=] { return Tensors{random(shape)}; }});
    }
  }
}

}  // namespace
}  // namespace graft::testing
