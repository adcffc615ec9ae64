#include "tensordict/map.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() { return TensorDict({{"a", at::ones({2, 3})}, {"b", at::ones({2})}}, {2}); }

TEST(MapTest, TheResultSharesTheKeys) {
  const TensorDict td = example();
  const TensorDict twice = map(td, [](const at::Tensor& t) { return t * 2; });
  EXPECT_EQ(twice.keys(), td.keys());
  EXPECT_THAT(twice, TensorDictEq(TensorDict({{"a", at::full({2, 3}, 2.)}, {"b", at::full({2}, 2.)}}, {2})));
}

TEST(MapTest, OtherBatchDimsHaveToBeGiven) {
  const TensorDict td = example();
  const auto sum = [](const at::Tensor& t) { return t.sum(0); };
  EXPECT_THAT([&] { map(td, sum); }, ThrowsWith<c10::ValueError>("\"a\"", "\"b\""));
  EXPECT_EQ(map(td, sum, {}).batch_dims(), 0);
}

TEST(MapTest, NamedMapShowsThePath) {
  const TensorDict td = example();
  const TensorDict result =
      named_map(td, [](const std::string& path, const at::Tensor& t) { return path == "a" ? t : -t; });
  EXPECT_TRUE(result["a"].is_same(td["a"]));
  EXPECT_EQ(result["b"][0].item<float>(), -1);
}

TEST(MapTest, ZipMapPairsByPath) {
  const TensorDict left({{"x", at::ones({1})}, {"y", at::zeros({1})}});
  const TensorDict right({{"y", at::full({1}, 5.)}, {"x", at::full({1}, 7.)}});
  const auto add = [](const at::Tensor& a, const at::Tensor& b) { return a + b; };
  EXPECT_THAT(zip_map(left, right, add),
              TensorDictEq(TensorDict({{"x", at::full({1}, 8.)}, {"y", at::full({1}, 5.)}})));
  EXPECT_THAT([&] { zip_map(left, example(), add); }, ThrowsWith<c10::ValueError>("zip_map", "\"x\"", "\"b\""));
}

TEST(MapTest, WhatTheFunctionThrowsPassesThrough) {
  EXPECT_THROW(map(example(), [](const at::Tensor&) -> at::Tensor { throw 3; }), int);
}

}  // namespace
}  // namespace graft
