#include "tensordict/summary.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace graft {
namespace {

TensorDict example() {
  const at::Tensor shared = at::zeros({1000});
  return TensorDict({{"encoder.0.w", at::zeros({20, 30})},
                     {"head", shared},
                     {"encoder.0.b", at::zeros({30}, at::kDouble)},
                     {"encoder.1.w", at::zeros({2, 3})},
                     {"tied.deep.w", shared}});
}

TEST(SummaryTest, CountsNumbersAndBytesOfEveryPart) {
  EXPECT_EQ(summary(example()),
            "             leaves  numbers     bytes\n"
            "all               5    1,636  6.51 KiB\n"
            "encoder           3      636  2.60 KiB\n"
            "  0               2      630  2.58 KiB\n"
            "    w             1      600  2.34 KiB\n"
            "    b             1       30     240 B\n"
            "  1.w             1        6      24 B\n"
            "head              1    1,000  3.91 KiB\n"
            "tied.deep.w       1        0       0 B\n");
}

TEST(SummaryTest, StopsAtADepth) {
  EXPECT_EQ(summary(example(), 1),
            "             leaves  numbers     bytes\n"
            "all               5    1,636  6.51 KiB\n"
            "encoder           3      636  2.60 KiB\n"
            "head              1    1,000  3.91 KiB\n"
            "tied.deep.w       1        0       0 B\n");
}

TEST(SummaryTest, CountsATieOnce) {
  EXPECT_EQ(numel(example()), 1636);
  EXPECT_EQ(nbytes(example()), 4 * (600 + 6 + 1000) + 8 * 30);
}

TEST(SummaryTest, WritesBytesAsPeopleReadThem) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(5368709120), "5.00 GiB");
}

}  // namespace
}  // namespace graft
