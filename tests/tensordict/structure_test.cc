#include "tensordict/structure.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ThrowsWith;

TEST(StructureTest, EveryDifferenceIsListed) {
  const TensorDict expected(
      {{"gone", at::zeros({1})}, {"shape", at::zeros({2})}, {"type", at::zeros({2})}, {"same", at::zeros({2})}});
  const TensorDict got({{"same", at::ones({2})},
                        {"shape", at::zeros({3})},
                        {"type", at::zeros({2}, at::kDouble)},
                        {"new", at::zeros({1})}});
  EXPECT_THAT(describe_mismatch(got, expected),
              AllOf(HasSubstr("\"gone\": missing"), HasSubstr("\"new\": unexpected"),
                    HasSubstr("\"shape\": shape [3], expected [2]"),
                    HasSubstr("\"type\": dtype double, expected float"), Not(HasSubstr("same"))));
}

TEST(StructureTest, WhatCountsIsAChoice) {
  const TensorDict a({{"x", at::zeros({2, 3})}});
  const TensorDict b({{"x", at::zeros({2, 5}).requires_grad_()}});
  EXPECT_EQ(describe_mismatch(a, b, {.shapes = false}), "");
  EXPECT_EQ(describe_mismatch(a, b, {.free_dim = 1}), "");
  EXPECT_NE(describe_mismatch(a, b, {.free_dim = 0}), "");
  EXPECT_THAT(describe_mismatch(a, b, {.shapes = false, .requires_grad = true}),
              HasSubstr("requires_grad false, expected true"));
}

TEST(StructureTest, OtherKeysAreAnErrorThatNamesTheCall) {
  const TensorDict a({{"x", at::zeros({2})}});
  const TensorDict b({{"y", at::zeros({2})}});
  EXPECT_THAT([&] { check_same_keys("some_call", a, b); },
              ThrowsWith<c10::ValueError>("some_call", "\"x\": missing", "\"y\": unexpected"));
}

TEST(StructureTest, ValuesAreAlignedByPath) {
  const TensorDict a({{"x", at::zeros({1})}, {"y", at::ones({1})}});
  const TensorDict b({{"y", at::ones({1})}, {"x", at::zeros({1})}});
  EXPECT_EQ(aligned_values("call", a, b)[0].item<float>(), 0);
  EXPECT_TRUE(equal(a, b));
}

TEST(StructureTest, EqualAndAllcloseLookAtValuesAndBatchSize) {
  const TensorDict a({{"x", at::ones({1})}});
  const TensorDict close({{"x", at::ones({1}) + 1e-6}});
  EXPECT_FALSE(equal(a, close));
  EXPECT_TRUE(allclose(a, close));
  EXPECT_FALSE(allclose(a, close, /*rtol=*/0, /*atol=*/1e-7));
  EXPECT_FALSE(equal(a, TensorDict({{"x", at::ones({1})}}, {1})));
  EXPECT_FALSE(equal(a, TensorDict({{"x", at::ones({2})}})));
}

}  // namespace
}  // namespace graft
