#include "tensordict/leafwise.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() { return TensorDict({{"a", at::full({2}, 3.)}, {"b", at::full({2}, 3, at::kLong)}}, {2}); }

TEST(LeafwiseTest, FilledTreesKeepShapesAndDtypes) {
  EXPECT_THAT(full_like(example(), 3), TensorDictEq(example()));
  EXPECT_EQ(zeros_like(example())["b"].scalar_type(), at::kLong);
  EXPECT_EQ(ones_like(example())["b"].sum().item<int64_t>(), 2);
}

TEST(LeafwiseTest, DetachSharesAndCloneCopies) {
  const TensorDict td = example();
  EXPECT_TRUE(detach(td)["a"].is_alias_of(td["a"]));
  EXPECT_FALSE(clone(td)["a"].is_alias_of(td["a"]));
}

TEST(LeafwiseTest, ToChangesDtypeAndDevice) {
  EXPECT_EQ(to(example(), at::kDouble)["b"].scalar_type(), at::kDouble);
  EXPECT_TRUE(to(example(), at::Device(at::kMeta))["a"].is_meta());
}

TEST(LeafwiseTest, RequiresGradIsAllOrNothing) {
  const TensorDict td = example();
  EXPECT_THAT([&] { requires_grad_(td); }, ThrowsWith<c10::ValueError>("\"b\"", "dtype long"));
  EXPECT_FALSE(td["a"].requires_grad());
  EXPECT_TRUE(requires_grad_(to(td, at::kDouble))["b"].requires_grad());
}

}  // namespace
}  // namespace graft
