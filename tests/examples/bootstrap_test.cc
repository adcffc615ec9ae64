#include "examples/digits_ensemble/bootstrap.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace digits_ensemble {
namespace {

at::Tensor sorted(const at::Tensor& epoch) { return std::get<0>(epoch.flatten().sort()); }

TEST(BootstrapTest, ShufflesTheSameDrawEveryEpoch) {
  Bootstrap bootstrap(/*digits=*/1000, /*batch=*/10, /*seed=*/0, /*member=*/0);
  const at::Tensor first = bootstrap.next_epoch();
  const at::Tensor second = bootstrap.next_epoch();
  EXPECT_EQ(first.sizes(), at::IntArrayRef({100, 10}));
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_TRUE(at::equal(sorted(first), sorted(second)));
}

TEST(BootstrapTest, DrawsWithReplacement) {
  const at::Tensor drawn = Bootstrap(1000, 10, /*seed=*/0, /*member=*/0).next_epoch();
  const double distinct = static_cast<double>(std::get<0>(at::_unique(drawn)).numel()) / 1000;
  EXPECT_NEAR(distinct, 1 - std::exp(-1.0), 0.05);
  EXPECT_GE(drawn.min().item<int64_t>(), 0);
  EXPECT_LT(drawn.max().item<int64_t>(), 1000);
}

TEST(BootstrapTest, FollowsSeedAndMember) {
  const auto epoch = [](uint64_t seed, int64_t member) { return Bootstrap(100, 10, seed, member).next_epoch(); };
  EXPECT_TRUE(at::equal(epoch(3, 5), epoch(3, 5)));
  EXPECT_FALSE(at::equal(epoch(3, 5), epoch(3, 6)));
  EXPECT_FALSE(at::equal(epoch(3, 5), epoch(4, 5)));
}

TEST(BootstrapTest, LeavesOutWhatDoesNotFillABatch) {
  EXPECT_EQ(Bootstrap(99, 10, 0, 0).next_epoch().sizes(), at::IntArrayRef({9, 10}));
}

TEST(BootstrapTest, RefusesABatchLargerThanTheData) {
  EXPECT_THROW(Bootstrap(9, 10, 0, 0), c10::ValueError);
  EXPECT_THROW(Bootstrap(9, 0, 0, 0), c10::ValueError);
}

}  // namespace
}  // namespace digits_ensemble
