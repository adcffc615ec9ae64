#include "tensordict/match_keys.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tensordict/pointwise.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict left() { return TensorDict({{"both", at::ones({2, 3})}, {"part.l", at::full({2}, 5.)}}, {2}); }
TensorDict right() {
  return TensorDict({{"part.r", at::full({2, 4}, 7, at::kLong)}, {"both", at::full({2, 3}, 2.)}}, {2});
}

TEST(MatchKeysTest, CommonLeavesAreThoseOfBoth) {
  const auto [a, b] = keep_common(left(), right());
  EXPECT_THAT(a, TensorDictEq(TensorDict({{"both", at::ones({2, 3})}}, {2})));
  EXPECT_THAT(b, TensorDictEq(TensorDict({{"both", at::full({2, 3}, 2.)}}, {2})));
}

// As tensordict gives for `left.sub(right, default=torch.tensor(1.0))`.
TEST(MatchKeysTest, MissingLeavesAreFilled) {
  const auto [a, b] = fill_missing(left(), right(), 1);
  EXPECT_THAT(
      a - b,
      TensorDictEq(TensorDict(
          {{"both", at::full({2, 3}, -1.)}, {"part.l", at::full({2}, 4.)}, {"part.r", at::full({2, 4}, -6, at::kLong)}},
          {2})));
  EXPECT_TRUE(a["both"].equal(at::ones({2, 3})));
}

TEST(MatchKeysTest, MissingLeavesHaveTheBatchDimsOfTheirNewTree) {
  const TensorDict row({{"x", at::ones({3})}}), stacked({{"y", at::ones({2, 5})}}, {2});
  const auto [a, b] = fill_missing(row, stacked, 0);
  EXPECT_EQ(a["y"].sizes(), at::IntArrayRef({5}));
  EXPECT_EQ(b["x"].sizes(), at::IntArrayRef({2, 3}));
}

TEST(MatchKeysTest, PartsKeepTheirBatchDims) {
  TensorDict tree({{"a", at::ones({2})}}, {2});
  tree.set("part", TensorDict({{"x", at::ones({2, 3, 4})}}, {2, 3}));
  const TensorDict other({{"a", at::ones({2})}}, {2});
  EXPECT_EQ(fill_missing(tree, other, 0).second.batch_size("part"), (std::vector<int64_t>{2, 3}));
}

TEST(MatchKeysTest, ALeafIsNoPart) {
  const TensorDict other({{"part", at::ones({2})}}, {2});
  EXPECT_THAT([&] { fill_missing(left(), other, 0); }, ThrowsWith<c10::ValueError>("\"part\""));
}

TEST(MatchKeysTest, NoResultIsLocked) {
  TensorDict locked = left();
  locked.lock_();
  EXPECT_FALSE(keep_common(locked, right()).first.is_locked());
  EXPECT_FALSE(fill_missing(locked, right(), 0).first.is_locked());
}

TEST(MatchKeysTest, APartKeepsItsOwnBatchDimsWhateverTheOtherTreeHas) {
  TensorDict plain({{"p.x", at::ones({4})}}, {4}), other(std::vector<int64_t>{4});
  other.set("p", TensorDict({{"x", at::ones({4, 3})}, {"y", at::ones({4, 3})}}, {4, 3}));
  EXPECT_EQ(fill_missing(plain, other, 0).first["p.y"].sizes(), at::IntArrayRef({4, 3}));
}

TEST(MatchKeysTest, LeavesAreFilledWithTheVeryNumber) {
  const TensorDict empty, counts({{"n", at::ones({2}, at::kLong)}, {"m", at::ones({2}, at::kLong)}});
  EXPECT_THAT([&] { fill_missing(empty, counts, 0.5); }, ThrowsWith<c10::ValueError>("fill_missing", "\"n\"", "\"m\""));
  EXPECT_THAT(
      [&] {
        fill_missing(counts, empty, -INFINITY);
        fill_missing(empty, counts, -INFINITY);
      },
      ThrowsWith<c10::ValueError>("\"n\"", "\"m\""));
  EXPECT_EQ(fill_missing(empty, counts, 2.0).first.size(), 2);
}

}  // namespace
}  // namespace graft
