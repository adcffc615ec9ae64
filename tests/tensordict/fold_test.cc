#include "tensordict/fold.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>

namespace graft {
namespace {

TEST(FoldTest, TakesLeavesInOrder) {
  const TensorDict td({{"b", at::zeros({2})}, {"a.c", at::zeros({3})}});
  const auto describe = [](std::string text, const std::string& path, const at::Tensor& leaf) {
    return text + path + std::to_string(leaf.numel()) + ";";
  };
  EXPECT_EQ(fold(td, std::string("of "), describe), "of b2;a.c3;");
  EXPECT_EQ(fold(TensorDict(), std::string("nothing"), describe), "nothing");
}

}  // namespace
}  // namespace graft
