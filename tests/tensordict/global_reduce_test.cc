#include "tensordict/global_reduce.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;

/// A reduction, and what LibTorch computes of all elements in one tensor.
struct Function {
  std::string name;
  std::function<at::Tensor(const TensorDict&, int64_t)> of_tree;
  std::function<at::Tensor(const at::Tensor&)> of_elements;
};

#define GRAFT_ROW(name)                                                                        \
  {                                                                                            \
    "global_" #name, [](const TensorDict& t, int64_t dims) { return global_##name(t, dims); }, \
        [](const at::Tensor& x) { return at::name(x); }                                        \
  }
const std::vector<Function> kFunctions{GRAFT_ROW(sum),  GRAFT_ROW(prod), GRAFT_ROW(amax), GRAFT_ROW(amin),
                                       GRAFT_ROW(mean), GRAFT_ROW(std),  GRAFT_ROW(var),  GRAFT_ROW(norm)};

/// Leaves [2, ...] of several ranks.
TensorDict example() {
  const at::Tensor x = at::linspace(0.3, 2, 18, at::kDouble).sin() * 1.5;
  return TensorDict(
      {{"a", x.slice(0, 0, 12).view({2, 3, 2})}, {"n.b", x.slice(0, 12, 14)}, {"c", x.slice(0, 14).view({2, 2})}}, {2});
}

at::Tensor elements(const TensorDict& tree) {
  std::vector<at::Tensor> parts;
  for (const auto& [path, leaf] : tree.leaves()) parts.push_back(leaf.flatten());
  return at::cat(parts);
}

TensorDict row(const TensorDict& tree, int64_t i) {
  TensorDict result;
  for (const auto& [path, leaf] : tree.leaves()) result.set(path, leaf[i]);
  return result;
}

TEST(GlobalReduceTest, TheWholeTreeIsReducedAsOneTensor) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const at::Tensor got = f.of_tree(td, 0);
    EXPECT_EQ(got.dim(), 0);
    EXPECT_TRUE(got.allclose(f.of_elements(elements(td)))) << f.name;
  }
}

TEST(GlobalReduceTest, BatchDimsStay) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const at::Tensor expected = at::stack({f.of_elements(elements(row(td, 0))), f.of_elements(elements(row(td, 1)))});
    EXPECT_TRUE(f.of_tree(td, 1).allclose(expected)) << f.name;
    EXPECT_TRUE(vmap([&](const TensorDict& one) { return f.of_tree(one, 0); })(td).allclose(expected)) << f.name;
  }
  const TensorDict wrong({{"a", at::ones({2, 3})}, {"b", at::ones({})}, {"c", at::ones({3})}});
  EXPECT_THAT(
      [&] { global_norm(wrong, 1); },
      ThrowsWith<c10::ValueError>("global_norm", "\"b\": shape []", "\"c\": shape [3], expected to start with [2]"));
  EXPECT_THAT([&] { global_sum(wrong, -1); }, ThrowsWith<c10::IndexError>("global_sum", "-1"));
}

TEST(GlobalReduceTest, DerivativesAreThoseOfTheElements) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const TensorDict got = grad([&](const TensorDict& tree) { return f.of_tree(tree, 0); })(td);
    const at::Tensor expected = grad([&](const at::Tensor& x) { return f.of_elements(x); })(elements(td));
    EXPECT_TRUE(elements(got).allclose(expected)) << f.name;

    // The same by autograd without wrappers, where operations are fused.
    TensorDict leaves;
    for (const auto& [path, leaf] : td.leaves()) leaves.set(path, leaf.clone().requires_grad_());
    f.of_tree(leaves, 0).backward();
    at::Tensor slope = at::cat({leaves["a"].grad().flatten(), leaves["n.b"].grad(), leaves["c"].grad().flatten()});
    EXPECT_TRUE(slope.allclose(expected)) << f.name;
  }
}

TEST(GlobalReduceTest, TheNormOfZerosHasTheDerivativeZero) {
  const TensorDict zeros({{"a", at::zeros({2}, at::kDouble)}, {"b", at::zeros({}, at::kDouble)}});
  const TensorDict got = grad([](const TensorDict& tree) { return global_norm(tree); })(zeros);
  EXPECT_TRUE(elements(got).equal(at::zeros({3}, at::kDouble)));
}

TEST(GlobalReduceTest, AnEmptyTreeHasNoElements) {
  const TensorDict none;
  EXPECT_EQ(global_sum(none).item<double>(), 0);
  EXPECT_EQ(global_prod(none).item<double>(), 1);
  EXPECT_EQ(global_norm(none).item<double>(), 0);
  EXPECT_EQ(dot(none, none).item<double>(), 0);
  EXPECT_TRUE(std::isnan(global_mean(none).item<double>()));
  EXPECT_TRUE(global_all(none).item<bool>());
  EXPECT_FALSE(global_any(none).item<bool>());
  EXPECT_THAT([&] { global_amax(none); }, ThrowsWith<c10::ValueError>("global_amax", "no elements"));
  EXPECT_TRUE(global_norm(TensorDict(std::vector<int64_t>{4, 2}), 1).equal(at::zeros({4})));
  const TensorDict hollow({{"a", at::ones({0, 3})}, {"b", at::ones({2})}});
  EXPECT_EQ(global_amax(hollow).item<double>(), 1);
  EXPECT_EQ(global_norm(hollow).item<float>(), std::sqrt(2.f));
}

TEST(GlobalReduceTest, DtypesArePromotedAndThoseThatFitNotAreListed) {
  const TensorDict mixed({{"a", at::full({4}, 2, at::kHalf)}, {"b", at::full({9}, 2, at::kDouble)}});
  EXPECT_EQ(global_norm(mixed).scalar_type(), at::kDouble);
  EXPECT_NEAR(global_norm(mixed).item<double>(), std::sqrt(52.), 1e-12);
  EXPECT_EQ(global_mean(mixed).item<double>(), 2);
  EXPECT_EQ(dot(mixed, mixed).item<double>(), 52);
  const TensorDict whole({{"a", at::ones({2})}, {"b", at::ones({2}, at::kLong)}, {"c", at::ones({}, at::kBool)}});
  EXPECT_THAT([&] { global_norm(whole); },
              ThrowsWith<c10::ValueError>("global_norm", "\"b\": dtype long", "\"c\": dtype bool"));
  EXPECT_THAT([&] { global_mean(whole); }, ThrowsWith<c10::ValueError>("global_mean", "\"b\"", "\"c\""));
  EXPECT_EQ(global_sum(whole).item<double>(), 5);
  EXPECT_TRUE(global_all(whole).item<bool>());
}

TEST(GlobalReduceTest, DotIsTheSumOfAllProducts) {
  const TensorDict td = example();
  const TensorDict other({{"c", td["c"] + 1}, {"a", td["a"] * 2}, {"n.b", td["n.b"] - 3}}, {2});
  const TensorDict ordered({{"a", other["a"]}, {"n.b", other["n.b"]}, {"c", other["c"]}});
  const at::Tensor expected = elements(td).dot(elements(ordered));
  EXPECT_TRUE(dot(td, other).allclose(expected));
  const at::Tensor rows = at::stack(
      {elements(row(td, 0)).dot(elements(row(ordered, 0))), elements(row(td, 1)).dot(elements(row(ordered, 1)))});
  EXPECT_TRUE(dot(td, other, 1).allclose(rows));
  EXPECT_TRUE(vmap([](const TensorDict& l, const TensorDict& r) { return dot(l, r); })(td, other).allclose(rows));
  const TensorDict slope = grad([&](const TensorDict& tree) { return dot(tree, other); })(td);
  EXPECT_TRUE(elements(slope).equal(elements(ordered)));
  EXPECT_THAT(
      [&] {
        dot(td, TensorDict({{"a", at::ones({2})}}));
      },
      ThrowsWith<c10::ValueError>("dot", "\"n.b\": missing", "\"c\": missing"));
  const TensorDict wrong({{"a", at::ones({2})}, {"n.b", at::ones({2})}, {"c", at::ones({2})}});
  EXPECT_THAT([&] { dot(td, wrong); },
              ThrowsWith<c10::ValueError>("dot", "\"a\": shape [2], expected [2, 3, 2]", "\"c\": shape [2]"));
}

TEST(GlobalReduceTest, TheMeanOfManyHalfsIsWithinTheirRange) {
  const TensorDict td({{"a", at::full({10000}, 100, at::kHalf)}, {"b", at::full({2}, 100, at::kHalf)}});
  EXPECT_EQ(global_mean(td).item<double>(), 100);
  EXPECT_EQ(global_mean(td).scalar_type(), at::kHalf);
}

}  // namespace
}  // namespace graft
