#include "tensordict/auto_batch_size.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

TEST(AutoBatchSizeTest, IsTheLongestPrefixOfAllLeaves) {
  TensorDict td({{"a", at::zeros({4, 3, 2})}, {"b.c", at::zeros({4, 3})}, {"d", at::zeros({4, 3, 5})}});
  EXPECT_EQ(auto_batch_size_(td).batch_size(), (Sizes{4, 3}));
  EXPECT_EQ(auto_batch_size_(td, 1).batch_size(), Sizes{4});
  td.set("e", at::zeros({4, 9}));
  EXPECT_EQ(auto_batch_size_(td).batch_size(), Sizes{4});
  td.set_batch_size({});
  td.set("f", at::zeros({}));
  EXPECT_EQ(auto_batch_size_(td).batch_size(), Sizes{});
}

TEST(AutoBatchSizeTest, OfOneLeafIsItsShapeAndOfNoneStays) {
  TensorDict one({{"a", at::zeros({2, 3})}}), none(Sizes{7});
  EXPECT_EQ(auto_batch_size_(one).batch_size(), (Sizes{2, 3}));
  EXPECT_EQ(auto_batch_size_(none).batch_size(), Sizes{7});
  EXPECT_THAT([&] { auto_batch_size_(one, -1); }, ThrowsWith<c10::ValueError>("batch_dims is -1"));
  one.lock_();
  EXPECT_THAT([&] { auto_batch_size_(one); }, ThrowsWith<c10::Error>("locked"));
}

}  // namespace
}  // namespace graft
