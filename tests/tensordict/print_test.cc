#include "tensordict/print.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace graft {
namespace {

using ::testing::HasSubstr;

std::string printed(const TensorDict& tree) {
  std::ostringstream text;
  text << tree;
  return text.str();
}

TEST(PrintTest, ALineAPartAndALeafSaysWhatItIs) {
  TensorDict td({{"obs", at::zeros({4, 3})},
                 {"next.obs", at::zeros({4, 3}).requires_grad_()},
                 {"next.reward", at::zeros({4, 3, 1}, at::kDouble)},
                 {"far", at::zeros({4}, at::kMeta).requires_grad_()}},
                {4});
  td.set_batch_size("next", {4, 3});
  EXPECT_EQ(printed(td.lock_()),
            "TensorDict: 4 leaves, batch size [4], 208 B, locked\n"
            "  obs       Float [4, 3]  48 B\n"
            "  next      batch size [4, 3]\n"
            "    obs     Float [4, 3]  48 B  requires grad\n"
            "    reward  Double [4, 3, 1]  96 B\n"
            "  far       Float [4]  16 B  meta, requires grad");
}

TEST(PrintTest, OfNothingIsOneLine) {
  EXPECT_EQ(printed(TensorDict(std::vector<int64_t>{2})), "TensorDict: 0 leaves, batch size [2], 0 B");
}

TEST(PrintTest, OfManyLeavesStopsAtAThousandLines) {
  TensorDict td;
  for (int i = 0; i < 1500; ++i) td.set("x" + std::to_string(i), at::zeros({}));
  EXPECT_THAT(printed(td), HasSubstr("x999 "));
  EXPECT_THAT(printed(td), HasSubstr("\n  and 500 more lines"));
}

}  // namespace
}  // namespace graft
