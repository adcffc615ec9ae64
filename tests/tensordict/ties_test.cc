#include "tensordict/ties.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace graft {
namespace {

TEST(TiesTest, NamesTheFirstTensorThatIsTheSame) {
  const at::Tensor a = torch::ones({2}), b = torch::ones({2});
  EXPECT_EQ(tie_positions({a, b, a, b, a}), (std::vector<std::size_t>{0, 1, 0, 1, 0}));
  EXPECT_TRUE(tie_positions({}).empty());
}

TEST(TiesTest, TakesViewsForTensorsOfTheirOwn) {
  const at::Tensor a = torch::ones({2});
  EXPECT_EQ(tie_positions({a, a.view({2}), a.detach()}), (std::vector<std::size_t>{0, 1, 2}));
}

TEST(TiesTest, GivesEachTensorOnceInOrder) {
  const at::Tensor a = torch::ones({2}), b = torch::ones({2});
  const std::vector<at::Tensor> tensors = distinct({b, a, b, a});
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_TRUE(tensors[0].is_same(b) && tensors[1].is_same(a));
}

}  // namespace
}  // namespace graft
