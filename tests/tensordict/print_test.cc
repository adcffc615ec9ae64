#include "tensordict/print.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace graft {
namespace {

using ::testing::HasSubstr;

TEST(PrintTest, ALineALeafSaysWhatItIs) {
  std::ostringstream text;
  text << TensorDict({{"obs", at::zeros({4, 3})},
                      {"next.obs", at::zeros({4, 3}).requires_grad_()},
                      {"far", at::zeros({4}, at::kMeta)}},
                     {4});
  EXPECT_THAT(text.str(), HasSubstr("3 leaves, batch size [4]"));
  EXPECT_THAT(text.str(), HasSubstr("\n  obs: Float [4, 3]\n"));
  EXPECT_THAT(text.str(), HasSubstr("next.obs: Float [4, 3], requires grad"));
  EXPECT_THAT(text.str(), HasSubstr("far: Float [4] on meta"));
}

}  // namespace
}  // namespace graft
