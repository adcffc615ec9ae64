#include "tensordict/internal/for_all_leaves.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "functional/internal/transform_level.h"
#include "tests/testing/numbers.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft::internal {
namespace {

using at::Tensor;
using testing::list_of;
using testing::Near;
using testing::numbers;
using testing::TensorDictEq;
using testing::ThrowsWith;

/// How often an operation was called in each of its two ways.
struct Calls {
  int fused = 0;
  int single = 0;
};

/// Returns `left - right` of all leaves, and counts.
template <typename Right>
Tensors difference(const Tensors& left, const Right& right, Calls& calls) {
  return for_all_leaves(
      [&](const Tensors& l, const auto& r) {
        ++calls.fused;
        return at::_foreach_sub(l, r);
      },
      [&](const Tensor& l, const auto& r) {
        ++calls.single;
        return l - r;
      },
      left, right);
}

Tensors two_leaves() { return {numbers({1, 2}, {2}), numbers({10, 20, 30}, {3})}; }
Tensors two_others() { return {numbers({5, 7}, {2}), numbers({100, 300, 500}, {3})}; }

TEST(ForAllLeavesTest, PlainLeavesAreOneCallOfTheFusedOperation) {
  Calls calls;
  const Tensors results = difference(two_leaves(), two_others(), calls);
  ASSERT_EQ(results.size(), 2);
  EXPECT_THAT(list_of(results[0]), Near({-4, -5}));
  EXPECT_THAT(list_of(results[1]), Near({-90, -280, -470}));
  EXPECT_EQ(calls.fused, 1);
  EXPECT_EQ(calls.single, 0);
}

TEST(ForAllLeavesTest, ANumberStandsBesideEveryLeaf) {
  Calls calls;
  const Tensors results = difference(two_leaves(), at::Scalar(3), calls);
  ASSERT_EQ(results.size(), 2);
  EXPECT_THAT(list_of(results[0]), Near({-2, -1}));
  EXPECT_THAT(list_of(results[1]), Near({7, 17, 27}));
  EXPECT_EQ(calls.fused, 1);
  EXPECT_EQ(calls.single, 0);
}

TEST(ForAllLeavesTest, NoLeavesAreNoCall) {
  Calls calls;
  EXPECT_TRUE(difference({}, Tensors{}, calls).empty());
  EXPECT_TRUE(difference({}, at::Scalar(3), calls).empty());
  EXPECT_EQ(calls.fused, 0);
  EXPECT_EQ(calls.single, 0);
}

TEST(ForAllLeavesTest, OneWrapperOfVmapOnAnySideTakesAllLeavesOneByOne) {
  const VmapLevel vmap(/*batch_size=*/2, Randomness::kError);
  const Tensor samples = vmap.batch(numbers({1, 2, 3, 10, 20, 30}, {2, 3}), 0);
  const auto expect = [&](const Tensors& left, const Tensors& right, const std::vector<double>& last) {
    Calls calls;
    const Tensors results = difference(left, right, calls);
    ASSERT_EQ(results.size(), 2);
    EXPECT_THAT(list_of(results[0]), Near({-4, -5}));
    EXPECT_THAT(list_of(vmap.unbatch(results[1], 0)), Near(last));
    EXPECT_EQ(calls.fused, 0);
    EXPECT_EQ(calls.single, 2);
  };
  expect({two_leaves()[0], samples}, two_others(), {-99, -298, -497, -90, -280, -470});
  expect(two_leaves(), {two_others()[0], samples}, {9, 18, 27, 0, 0, 0});
}

TEST(ForAllLeavesTest, AWrapperOfADerivativeBesideANumberTakesAllLeavesOneByOne) {
  const Tensors leaves = two_leaves();
  Calls calls;
  Tensors results;
  {
    const GradLevel grad;
    for (const Tensor& result : difference({grad.wrap(leaves[0]), leaves[1]}, at::Scalar(3), calls)) {
      results.push_back(grad.unwrap(result));
    }
  }
  ASSERT_EQ(results.size(), 2);
  EXPECT_THAT(list_of(results[0]), Near({-2, -1}));
  EXPECT_THAT(list_of(results[1]), Near({7, 17, 27}));
  EXPECT_EQ(calls.fused, 0);
  EXPECT_EQ(calls.single, 2);
}

TEST(ForAllLeavesTest, AnOperationMayHaveOneSideOrThree) {
  const Tensors negated = for_all_leaves([](const Tensors& x) { return at::_foreach_neg(x); },
                                         [](const Tensor& x) { return -x; }, two_leaves());
  EXPECT_THAT(list_of(negated.at(1)), Near({-10, -20, -30}));

  const VmapLevel vmap(/*batch_size=*/2, Randomness::kError);
  const Tensor samples = vmap.batch(numbers({1, 2}, {2}), 0);
  bool is_fused = false;
  const Tensors sums = for_all_leaves(
      [&](const Tensors& a, const Tensors&, const at::Scalar&) {
        is_fused = true;
        return a;
      },
      [](const Tensor& a, const Tensor& b, const at::Scalar& factor) { return a + b * factor; },
      Tensors{two_leaves()[0]}, Tensors{samples}, at::Scalar(10));
  EXPECT_FALSE(is_fused);
  EXPECT_THAT(list_of(vmap.unbatch(sums.at(0), 0)), Near({11, 12, 21, 22}));
}

TEST(ForEachLeafTest, CallsInTheOrderOfTheLeaves) {
  std::vector<double> seen;
  const Tensors results = for_each_leaf(
      [&](const Tensor& left, const Tensor& right, const at::Scalar& number) {
        seen.push_back(left.sum().item<double>());
        return left * right + number;
      },
      two_leaves(), two_others(), at::Scalar(1));
  EXPECT_THAT(seen, Near({3, 60}));
  ASSERT_EQ(results.size(), 2);
  EXPECT_THAT(list_of(results[0]), Near({6, 15}));
  EXPECT_THAT(list_of(results[1]), Near({1001, 6001, 15001}));
}

// --- A tree and an operand

TensorDict product(const TensorDict& tree, const Operand& operand) {
  return combine("product", tree, operand, [](const Tensors& left, const auto& right) {
    return for_each_leaf([](const Tensor& l, const auto& r) { return l * r; }, left, right);
  });
}

TensorDict example() { return TensorDict({{"a", numbers({1, 2}, {2})}, {"x.b", numbers({3, 4}, {2})}}, {2}); }

TEST(CombineTest, ANumberMeetsEveryLeafAsItIs) {
  bool is_number = false;
  const TensorDict result = combine("f", example(), 10, [&](const Tensors& left, const auto& right) {
    is_number = std::is_same_v<decltype(right), const at::Scalar&>;
    return for_each_leaf([](const Tensor& l, const auto& r) { return l * r; }, left, right);
  });
  EXPECT_TRUE(is_number);
  EXPECT_THAT(result, TensorDictEq(TensorDict({{"a", numbers({10, 20}, {2})}, {"x.b", numbers({30, 40}, {2})}}, {2})));
}

TEST(CombineTest, ATreeIsPairedByPathAndNotByOrder) {
  const TensorDict other({{"x.b", numbers({10, 100}, {2})}, {"a", numbers({2, 3}, {2})}}, {2});
  EXPECT_THAT(product(example(), other),
              TensorDictEq(TensorDict({{"a", numbers({2, 6}, {2})}, {"x.b", numbers({30, 400}, {2})}}, {2})));
}

TEST(CombineTest, TheResultHasTheBatchSizeThatTheOperandBroadcastsTo) {
  const TensorDict expected({{"a", numbers({1, 2, 10, 20, 100, 200}, {3, 2})},  //
                             {"x.b", numbers({3, 4, 30, 40, 300, 400}, {3, 2})}},
                            {3, 2});
  EXPECT_THAT(product(example(), numbers({1, 10, 100}, {3, 1})), TensorDictEq(expected));
}

TEST(CombineTest, TheResultIsLockedIfTheTreeIs) {
  TensorDict tree = example();
  const Tensor weights = numbers({1, 2}, {2});
  EXPECT_FALSE(product(tree, 2).is_locked());
  EXPECT_FALSE(product(tree, weights).is_locked());
  tree.lock_();
  EXPECT_TRUE(product(tree, 2).is_locked());
  EXPECT_TRUE(product(tree, weights).is_locked());
}

TEST(CombineTest, WhatDoesNotFitIsRefusedInTheNameOfTheCallBeforeAnythingIsComputed) {
  bool computed = false;
  const auto results = [&](const Tensors& left, const auto&) {
    computed = true;
    return left;
  };
  EXPECT_THAT(
      [&] {
        combine("f", example(), TensorDict({{"a", at::ones({2})}}, {2}), results);
      },
      ThrowsWith<c10::ValueError>("f: ", "\"x.b\""));
  EXPECT_THAT([&] { combine("f", example(), at::ones({3}), results); },
              ThrowsWith<c10::ValueError>("f: ", "[3]", "does not broadcast to the batch size [2]"));
  EXPECT_FALSE(computed);
}

}  // namespace
}  // namespace graft::internal
