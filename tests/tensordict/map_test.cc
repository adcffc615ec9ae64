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

TEST(MapTest, ZipMapTakesThreeTrees) {
  const TensorDict first({{"x", at::ones({2, 1})}, {"y", at::zeros({2})}}, {2});
  const TensorDict second({{"y", at::full({2}, 5.)}, {"x", at::full({2, 1}, 7.)}}, {2});
  const auto sum = [](const at::Tensor& a, const at::Tensor& b, const at::Tensor& c) { return a + b * c; };
  EXPECT_THAT(zip_map(first, second, second, sum),
              TensorDictEq(TensorDict({{"x", at::full({2, 1}, 50.)}, {"y", at::full({2}, 25.)}}, {2})));
  EXPECT_THAT([&] { zip_map(first, second, example(), sum); },
              ThrowsWith<c10::ValueError>("zip_map", "\"x\"", "\"b\""));
}

TEST(MapInPlaceTest, ResultsAreWrittenIntoTheLeaves) {
  TensorDict td = example();
  td.lock_();
  const at::Tensor a = td["a"];
  EXPECT_EQ(&map_(td, [](const at::Tensor& t) { return (t * 3).to(at::kLong); }), &td);
  EXPECT_TRUE(a.equal(at::full({2, 3}, 3.)));
  named_map_(td, [](const std::string& path, const at::Tensor& t) { return path == "a" ? t : at::scalar_tensor(7); });
  EXPECT_TRUE(a.equal(at::full({2, 3}, 3.)));
  EXPECT_TRUE(td["b"].equal(at::full({2}, 7.)));
  const TensorDict other({{"b", at::ones({2})}, {"a", at::full({2, 3}, 2.)}}, {2});
  zip_map_(td, other, [](const at::Tensor& x, const at::Tensor& y) { return x - y; });
  EXPECT_THAT(td, TensorDictEq(TensorDict({{"a", at::ones({2, 3})}, {"b", at::full({2}, 6.)}}, {2})));
}

TEST(MapInPlaceTest, NothingIsWrittenIfOneLeafFails) {
  const TensorDict td = example();
  EXPECT_THROW(named_map_(td,
                          [](const std::string& path, const at::Tensor& t) {
                            if (path == "b") throw 3;
                            return t * 2;
                          }),
               int);
  EXPECT_THAT([&] { map_(td, [](const at::Tensor& t) {
                      return at::ones({t.dim(), 5});
                    }); },
              ThrowsWith<c10::ValueError>("map_: ", "\"a\": shape [2, 5]", "\"b\": shape [1, 5]"));
  EXPECT_THAT([&] { map_(td, [](const at::Tensor&) { return at::Tensor(); }); },
              ThrowsWith<c10::ValueError>("map_: ", "\"a\": an undefined tensor"));
  EXPECT_THAT([&] { named_map_(td, [](const std::string&, const at::Tensor&) { return at::ones({9}); }); },
              ThrowsWith<c10::ValueError>("named_map_: "));
  EXPECT_THAT(
      [&] {
        zip_map_(td, TensorDict({{"a", at::ones({1})}}), [](const at::Tensor& x, const at::Tensor&) { return x; });
      },
      ThrowsWith<c10::ValueError>("zip_map_: ", "\"b\""));
  EXPECT_THAT(td, TensorDictEq(example()));
}

TEST(MapTest, WhatTheFunctionThrowsPassesThrough) {
  EXPECT_THROW(map(example(), [](const at::Tensor&) -> at::Tensor { throw 3; }), int);
}

TEST(MapInPlaceTest, ResultsMayBeOtherLeavesOfTheTree) {
  const TensorDict td({{"a", at::ones({2})}, {"b", at::zeros({2})}});
  const TensorDict swapped({{"a", td["b"]}, {"b", td["a"]}});
  zip_map_(td, swapped, [](const at::Tensor&, const at::Tensor& y) { return y; });
  EXPECT_TRUE(td["a"].equal(at::zeros({2})) && td["b"].equal(at::ones({2})));
}

}  // namespace
}  // namespace graft
