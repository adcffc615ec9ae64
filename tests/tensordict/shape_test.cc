#include "tensordict/shape.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using at::indexing::Ellipsis;
using at::indexing::Slice;
using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict member(double value) {
  return TensorDict({{"a", at::full({2, 3}, value)}, {"b.c", at::full({2}, value)}}, {2});
}

TEST(ShapeTest, UnbindUndoesStackAtEveryDim) {
  for (int64_t dim : {0, 1, -1, -2}) {
    const TensorDict stacked = stack({member(1), member(2), member(3)}, dim);
    EXPECT_EQ(stacked.batch_dims(), 2);
    EXPECT_EQ(stacked["b.c"].sizes(), at::IntArrayRef(stacked.batch_size()));
    const std::vector<TensorDict> members = unbind(stacked, dim);
    ASSERT_EQ(members.size(), 3u);
    EXPECT_THAT(members[1], TensorDictEq(member(2)));
  }
}

TEST(ShapeTest, StackDimStaysWithinTheBatchDims) {
  EXPECT_THAT([] { stack({member(1)}, 2); }, ThrowsWith<c10::IndexError>("stack(dim=2)", "-2 <= dim < 2"));
  EXPECT_THAT([] { stack({member(1)}, -3); }, ThrowsWith<c10::IndexError>("stack(dim=-3)"));
  EXPECT_THAT([] { unbind(TensorDict({{"a", at::zeros({2})}})); }, ThrowsWith<c10::IndexError>("unbind(dim=0)"));
}

TEST(ShapeTest, StackListsWhatIsWrongInEveryMember) {
  const TensorDict other_shape({{"a", at::zeros({2, 4})}, {"b.c", at::zeros({2}, at::kDouble)}}, {2});
  const TensorDict other_keys({{"a", at::zeros({2, 3})}, {"d", at::zeros({2})}}, {2});
  EXPECT_THAT(
      [&] {
        stack({member(1), other_shape, other_keys});
      },
      ThrowsWith<c10::ValueError>("member 1", "\"a\": shape [2, 4], expected [2, 3]", "\"b.c\": dtype double",
                                  "member 2", "\"b.c\": missing", "\"d\": unexpected"));
  EXPECT_THAT([] { stack({}); }, ThrowsWith<c10::ValueError>("no trees"));
}

TEST(ShapeTest, CatJoinsMembersOfOtherSizes) {
  const std::vector<TensorDict> parts = {index(member(1), {Slice(0, 1)}), member(2)};
  const TensorDict joined = cat(parts, -1);
  EXPECT_EQ(joined.batch_size(), std::vector<int64_t>{3});
  EXPECT_THAT(index(joined, {Slice(1, 3)}), TensorDictEq(member(2)));
  EXPECT_THAT(
      [] {
        cat({member(1), TensorDict({{"a", at::zeros({2, 4})}, {"b.c", at::zeros({2})}}, {2})});
      },
      ThrowsWith<c10::ValueError>("cat", "\"a\": shape [2, 4]"));
}

TEST(ShapeTest, IndexReturnsViewsOfTheBatchDims) {
  const TensorDict stacked = stack({member(1), member(2)});
  const TensorDict second = index(stacked, {1});
  EXPECT_THAT(second, TensorDictEq(member(2)));
  EXPECT_TRUE(second["a"].is_alias_of(stacked["a"]));
  EXPECT_EQ(index(stacked, {Ellipsis, 0}).batch_size(), std::vector<int64_t>{2});
  EXPECT_EQ(index(stacked, {at::indexing::None, 0}).batch_size(), (std::vector<int64_t>{1, 2}));
}

TEST(ShapeTest, IndexTakesMasksAndLists) {
  const TensorDict stacked = stack({member(1), member(2)});
  EXPECT_EQ(index(stacked, {at::eye(2).to(at::kBool)}).batch_size(), std::vector<int64_t>{2});
  EXPECT_EQ(index(stacked, {at::zeros({5}, at::kLong)}).batch_size(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(index(TensorDict(std::vector<int64_t>{4}), {Slice(0, 3)}).batch_size(), std::vector<int64_t>{3});
}

TEST(ShapeTest, IndexStopsAtTheBatchDims) {
  EXPECT_THAT([] { index(member(1), {0, 0}); }, ThrowsWith<c10::IndexError>("2 dims", "1 batch dims"));
  EXPECT_THROW(index(member(1), {2}), c10::IndexError);
}

}  // namespace
}  // namespace graft
