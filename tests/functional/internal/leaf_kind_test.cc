#include "functional/internal/leaf_kind.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>

#include "functional/internal/transform_level.h"

namespace graft::internal {
namespace {

TEST(LeafKindTest, PlainTensorsCarryNoDerivatives) {
  EXPECT_FALSE(carries_derivatives(at::ones({2})));
  EXPECT_FALSE(carries_derivatives(at::ones({2}).set_requires_grad(true).detach()));
}

TEST(LeafKindTest, TensorsThatRequireGradDo) {
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  EXPECT_TRUE(carries_derivatives(leaf));
  EXPECT_TRUE(carries_derivatives(leaf.mul(2)));
}

TEST(LeafKindTest, ValuesOfATransformDo) {
  const at::Tensor plain = at::ones({2});
  const VmapLevel vmap(/*batch_size=*/2, Randomness::kError);
  EXPECT_TRUE(carries_derivatives(vmap.batch(plain, 0)));
  const GradLevel grad;
  EXPECT_TRUE(carries_derivatives(grad.wrap(plain)));
}

TEST(LeafKindTest, TensorsWithATangentDo) {
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  ASSERT_EQ(level, 0);
  EXPECT_TRUE(carries_derivatives(at::_make_dual(at::ones({2}), at::ones({2}), level)));
  torch::autograd::ForwardADLevel::release_idx(level);
}

}  // namespace
}  // namespace graft::internal
