#include "tensordict/pointwise.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "tensordict/ternary.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

namespace functorch = at::functorch;
using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;

TensorDict tree(double a, double b) { return TensorDict({{"a", at::full({2, 3}, a)}, {"b", at::full({2}, b)}}, {2}); }

TEST(PointwiseTest, OperatorsBetweenTreesWorkLeafByLeaf) {
  EXPECT_THAT(tree(6, 8) + tree(2, 4), TensorDictEq(tree(8, 12)));
  EXPECT_THAT(tree(6, 8) - tree(2, 4), TensorDictEq(tree(4, 4)));
  EXPECT_THAT(tree(6, 8) * tree(2, 4), TensorDictEq(tree(12, 32)));
  EXPECT_THAT(tree(6, 8) / tree(2, 4), TensorDictEq(tree(3, 2)));
  EXPECT_THAT(-tree(6, 8), TensorDictEq(tree(-6, -8)));
}

TEST(PointwiseTest, NumbersStandOnBothSides) {
  EXPECT_THAT(tree(6, 8) + 2, TensorDictEq(2 + tree(6, 8)));
  EXPECT_THAT(tree(6, 8) * 0.5, TensorDictEq(0.5 * tree(6, 8)));
  EXPECT_THAT(tree(6, 8) - 2, TensorDictEq(tree(4, 6)));
  EXPECT_THAT(2 - tree(6, 8), TensorDictEq(tree(-4, -6)));
  EXPECT_THAT(tree(6, 8) / 2, TensorDictEq(tree(3, 4)));
  EXPECT_THAT(16 / tree(2, 8), TensorDictEq(tree(8, 2)));
}

TEST(PointwiseTest, TheResultHasTheKeysOfTheFirstTree) {
  const TensorDict left = tree(1, 2);
  const TensorDict reversed({{"b", at::full({2}, 20.)}, {"a", at::full({2, 3}, 10.)}}, {2});
  const TensorDict sum = left + reversed;
  EXPECT_EQ(sum.keys(), left.keys());
  EXPECT_THAT(sum, TensorDictEq(tree(11, 22)));
  EXPECT_THAT(
      [&] {
        left + TensorDict({{"c", at::zeros({2})}});
      },
      ThrowsWith<c10::ValueError>("operator+", "\"a\": missing", "\"b\": missing", "\"c\": unexpected"));
}

TEST(PointwiseTest, InPlaceOperatorsChangeTheSharedData) {
  TensorDict td = tree(6, 8);
  const TensorDict shared = td;
  td += tree(2, 4);
  td -= 4;
  td *= tree(3, 2);
  td /= 2;
  EXPECT_THAT(shared, TensorDictEq(tree(6, 8)));
  td *= 0.5;
  td += 1;
  td -= tree(1, 1);
  td /= tree(3, 4);
  EXPECT_THAT(shared, TensorDictEq(tree(1, 1)));
}

TEST(PointwiseTest, AnInPlaceOperatorThatCannotWorkChangesNothing) {
  TensorDict td = tree(6, 8);
  const TensorDict wrong({{"a", at::ones({3})}, {"b", at::ones({5})}});
  EXPECT_THAT([&] { td += wrong; }, ThrowsWith<c10::ValueError>("operator+=", "\"b\": shape [5]", "[2]"));
  EXPECT_THAT(td, TensorDictEq(tree(6, 8)));
}

TEST(PointwiseTest, GradientsFlow) {
  const at::Tensor x = at::full({2}, 3.).requires_grad_();
  const TensorDict td({{"x", x}});
  (td * td - 2 * td)["x"].sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({2}, 4.)));
}

TEST(PointwiseTest, TensorsStandOnBothSides) {
  const at::Tensor factors = at::tensor({1., 2.}, at::kFloat);
  const TensorDict td = tree(6, 8);
  const at::Tensor wide = factors.view({2, 1});
  EXPECT_THAT(td * factors, TensorDictEq(TensorDict({{"a", td["a"] * wide}, {"b", td["b"] * factors}}, {2})));
  EXPECT_THAT(factors * td, TensorDictEq(td * factors));
  EXPECT_THAT(factors + td, TensorDictEq(td + factors));
  EXPECT_THAT(factors - td, TensorDictEq(TensorDict({{"a", wide - td["a"]}, {"b", factors - td["b"]}}, {2})));
  EXPECT_THAT(factors / td, TensorDictEq(TensorDict({{"a", wide / td["a"]}, {"b", factors / td["b"]}}, {2})));
}

TEST(PointwiseTest, AnOperatorOnAnEmptyTreeIsEmpty) {
  TensorDict empty(std::vector<int64_t>{3});
  EXPECT_TRUE((empty + empty * 2 - at::ones({3})).empty());
  empty += empty;
  EXPECT_EQ((empty * at::ones({2, 1})).batch_size(), (std::vector<int64_t>{2, 3}));
}

TEST(PointwiseTest, ResultsAreLockedIfTheTreeIs) {
  TensorDict td = tree(6, 8);
  EXPECT_FALSE((td + td).is_locked());
  td.lock_();
  EXPECT_TRUE((td + td).is_locked());
  EXPECT_TRUE((-td).is_locked());
  td += 1;  // a lock leaves the data free
}

/// Computes something with every kind of operator.
TensorDict every_operator(const TensorDict& td, const TensorDict& other) {
  TensorDict result = lerp((td + other) * td - (1 - td) / (2 / other), -td, 0.5);
  result += td;
  result *= 3;
  return result;
}

TEST(PointwiseTest, WorksInsideVmap) {
  const at::Tensor x = at::arange(1, 7, at::kDouble).view({2, 3});
  const TensorDict unmapped({{"x", at::full({3}, 2., at::kDouble)}});
  const int64_t level = functorch::initAndPushDynamicLayer(functorch::TransformType::Vmap, c10::SymInt(2),
                                                           functorch::RandomnessType::Error);
  absl::Cleanup pop = [] { functorch::popDynamicLayerAndDeleteMetadata(); };
  const TensorDict mapped({{"x", functorch::makeBatched(x, 0, level)}});
  const at::Tensor result = every_operator(mapped, unmapped)["x"];
  const at::Tensor value = functorch::maybeGetBatchedImpl(result)->value();
  std::move(pop).Invoke();
  EXPECT_THAT(TensorDict({{"x", value}}), TensorDictNear(every_operator(TensorDict({{"x", x}}), unmapped), 1e-12));
}

TEST(PointwiseTest, WorksInsideGrad) {
  const at::Tensor x = at::arange(1, 4, at::kDouble);
  const TensorDict other({{"x", at::full({3}, 2., at::kDouble)}});
  const int64_t level = functorch::initAndPushDynamicLayer(functorch::TransformType::Grad, std::nullopt, std::nullopt,
                                                           /*prev_grad_mode=*/true);
  absl::Cleanup pop = [] { functorch::popDynamicLayerAndDeleteMetadata(); };
  const TensorDict wrapped({{"x", functorch::makeTensorWrapper(x, level)}});
  const at::Tensor result = every_operator(wrapped, other)["x"];
  const at::Tensor value = functorch::maybeGetTensorWrapper(result)->value();
  std::move(pop).Invoke();
  EXPECT_THAT(TensorDict({{"x", value}}), TensorDictNear(every_operator(TensorDict({{"x", x}}), other), 1e-12));
}

}  // namespace
}  // namespace graft
