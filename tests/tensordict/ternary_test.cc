#include "tensordict/ternary.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "functional/grad.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;

TensorDict tree(double a, double b) {
  return TensorDict({{"a", at::full({2, 3}, a, at::kDouble)}, {"b", at::full({2}, b, at::kDouble)}}, {2});
}

TEST(TernaryTest, LerpGoesFromStartToEnd) {
  EXPECT_THAT(lerp(tree(0, 10), tree(4, 20), 0.25), TensorDictNear(tree(1, 12.5), 1e-12));
  EXPECT_THAT(lerp(tree(0, 10), tree(4, 20), tree(0.25, 0.5)), TensorDictNear(tree(1, 15), 1e-12));
  EXPECT_THAT(lerp(tree(0, 10), at::tensor({4., 4.}), at::tensor({0.5, 0.5})), TensorDictNear(tree(2, 7), 1e-12));
  const TensorDict by_sample = lerp(tree(0, 0), tree(1, 1), at::tensor({0.25, 0.75}));
  EXPECT_TRUE(by_sample["a"].equal(at::tensor({0.25, 0.75}).view({2, 1}).expand({2, 3})));
  const TensorDict td = tree(0, 10);
  EXPECT_EQ(&lerp_(td, tree(4, 20), 0.25), &td);
  EXPECT_THAT(td, TensorDictNear(tree(1, 12.5), 1e-12));
  EXPECT_THAT(lerp_(td, tree(2, 13.5), tree(1, 0.5)), TensorDictNear(tree(2, 13), 1e-12));
}

TEST(TernaryTest, ProductsAndQuotientsAreAdded) {
  EXPECT_THAT(addcmul(tree(1, 2), tree(3, 4), tree(5, 6)), TensorDictNear(tree(16, 26), 1e-12));
  EXPECT_THAT(addcmul(tree(1, 2), tree(3, 4), at::tensor({5., 5.}), 2), TensorDictNear(tree(31, 42), 1e-12));
  EXPECT_THAT(addcmul(tree(1, 2), tree(3, 4), 5), TensorDictNear(tree(16, 22), 1e-12));
  EXPECT_THAT(addcdiv(tree(1, 2), tree(6, 8), tree(3, 2), 0.5), TensorDictNear(tree(2, 4), 1e-12));
  const TensorDict td = tree(1, 2);
  EXPECT_EQ(&addcmul_(td, tree(3, 4), tree(5, 6)), &td);
  EXPECT_THAT(td, TensorDictNear(tree(16, 26), 1e-12));
  EXPECT_THAT(addcdiv_(td, tree(6, 8), tree(3, 2), -1), TensorDictNear(tree(14, 22), 1e-12));
}

TEST(TernaryTest, WorksInsideVmapAndGrad) {
  const TensorDict td = tree(2, 3);
  const auto f = [](const TensorDict& t) { return addcdiv(addcmul(lerp(t, addcmul(t, t, t), 0.5), t, t), t, 4, 2); };
  EXPECT_THAT(vmap(f)(td), TensorDictNear(f(td), 1e-12));
  // x -> (x + x + x^2) / 2 + x^2 + x / 2 has the slope 1.5 + 3x.
  const TensorDict slope = grad([&](const TensorDict& t) { return f(t)["a"].sum() + f(t)["b"].sum(); })(td);
  EXPECT_TRUE(slope["a"].allclose(at::full({2, 3}, 7.5, at::kDouble)));
  EXPECT_TRUE(slope["b"].allclose(at::full({2}, 10.5, at::kDouble)));
  const auto in_place = [](const TensorDict& t) {
    const TensorDict copy = t.map([](const at::Tensor& leaf) { return leaf.clone(); });
    return addcmul_(lerp_(copy, t, 0.5), t, t);
  };
  EXPECT_THAT(vmap(in_place)(td), TensorDictNear(tree(6, 12), 1e-12));
}

TEST(TernaryTest, WhatCannotBeWrittenIsListedAndNothingIsChanged) {
  const TensorDict td = tree(1, 2);
  EXPECT_THAT(
      [&] {
        addcmul_(td, tree(1, 1), TensorDict({{"a", at::ones({})}}));
      },
      ThrowsWith<c10::ValueError>("addcmul_", "\"b\": missing"));
  EXPECT_THAT(
      [&] {
        lerp_(td, at::ones({4, 2}, at::kDouble), 0.5);
      },
      ThrowsWith<c10::ValueError>("lerp_", "\"a\": shape [4, 2, 1]", "\"b\": shape [4, 2]"));
  EXPECT_THAT(
      [&] {
        addcdiv_(TensorDict({{"n", at::ones({2}, at::kLong)}}), 1, 2);
      },
      ThrowsWith<c10::ValueError>("addcdiv_", "\"n\""));
  EXPECT_THAT(td, TensorDictEq(tree(1, 2)));
}

TEST(TernaryTest, WholeNumbersTakeWholeFactors) {
  const TensorDict td({{"n", at::ones({2}, at::kLong)}, {"x", at::ones({2})}});
  EXPECT_THAT([&] { addcmul(td, td, td, 0.5); }, ThrowsWith<c10::ValueError>("addcmul", "factor 0.5", "\"n\""));
  EXPECT_THAT([&] { addcmul_(td, td, td, 0.5); }, ThrowsWith<c10::ValueError>("addcmul_", "\"n\""));
  EXPECT_TRUE(addcmul(td, td, td, 2)["n"].equal(at::full({2}, 3, at::kLong)));
}

TEST(TernaryTest, NothingIsWrittenInPlaceIfOneLeafCannotBe) {
  const TensorDict td({{"a", at::ones({2})}, {"count", at::ones({2}, at::kLong)}});
  EXPECT_THAT([&] { lerp_(td, td, 0.01); }, ThrowsWith<c10::ValueError>("lerp_", "\"count\""));
}

}  // namespace
}  // namespace graft
