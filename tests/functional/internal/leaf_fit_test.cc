// What counts as carrying derivatives, and which leaf fits which slot. (The messages are tested through to_module.)
#include "functional/internal/leaf_fit.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/nn.h>

#include "functional/internal/transform_level.h"

namespace graft::internal {
namespace {

TEST(LeafFitTest, PlainTensorsCarryNoDerivatives) {
  EXPECT_FALSE(carries_derivatives(at::ones({2})));
  EXPECT_FALSE(carries_derivatives(at::ones({2}).set_requires_grad(true).detach()));
}

TEST(LeafFitTest, TensorsThatRequireGradDo) {
  const at::Tensor leaf = at::ones({2}).set_requires_grad(true);
  EXPECT_TRUE(carries_derivatives(leaf));
  EXPECT_TRUE(carries_derivatives(leaf.mul(2)));
}

TEST(LeafFitTest, ValuesOfATransformDo) {
  const at::Tensor plain = at::ones({2});
  const VmapLevel vmap(/*batch_size=*/2, Randomness::kError);
  EXPECT_TRUE(carries_derivatives(vmap.batch(plain, 0)));
  const GradLevel grad;
  EXPECT_TRUE(carries_derivatives(grad.wrap(plain)));
}

TEST(LeafFitTest, TensorsWithATangentDo) {
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  ASSERT_EQ(level, 0);
  EXPECT_TRUE(carries_derivatives(at::_make_dual(at::ones({2}), at::ones({2}), level)));
  torch::autograd::ForwardADLevel::release_idx(level);
}

/// The slots of a Linear(2, 3) whose bias does not require grad.
struct LinearSlots {
  LinearSlots() { linear->bias.set_requires_grad(false); }
  torch::nn::Linear linear{2, 3};
  SwapPlan plan{*linear};
  const Slot& weight = plan.slots()[0];
  const Slot& bias = plan.slots()[1];
};

TEST(LeafFitTest, APlainLeafNeedsAnAliasWhereGradIsRequired) {
  const LinearSlots slots;
  const InstallRules rules{.call = "test"};
  EXPECT_TRUE(needs_alias(slots.weight, at::ones({3, 2}), rules));
  EXPECT_FALSE(needs_alias(slots.weight, at::ones({3, 2}).set_requires_grad(true), rules));
  EXPECT_FALSE(needs_alias(slots.bias, at::ones({3}), rules));
  EXPECT_FALSE(needs_alias(slots.weight, at::ones({3, 2}), {.call = "test", .preserve_flags = false}));
}

TEST(LeafFitTest, ALeafFitsByItsShapeUnlessShapesAreNotChecked) {
  const LinearSlots slots;
  EXPECT_TRUE(fits(slots.weight, at::ones({3, 2}), false, {.call = "test"}));
  EXPECT_FALSE(fits(slots.weight, at::ones({2, 3}), false, {.call = "test"}));
  EXPECT_TRUE(fits(slots.weight, at::ones({2, 3}), false, {.call = "test", .check_shapes = false}));
}

TEST(LeafFitTest, OnlyALeafThatCanRequireGradFitsAsAnAlias) {
  const LinearSlots slots;
  const at::Tensor integers = at::ones({3, 2}, at::kLong);
  EXPECT_FALSE(fits(slots.weight, integers, /*aliased=*/true, {.call = "test"}));
  EXPECT_TRUE(fits(slots.weight, integers, /*aliased=*/false, {.call = "test"}));
  EXPECT_TRUE(fits(slots.weight, at::ones({3, 2}, at::kComplexFloat), /*aliased=*/true, {.call = "test"}));
}

/// Keeps its parameter where nobody knows.
struct Unknown : torch::nn::Module {
  Unknown() { hidden = register_parameter("w", at::ones({2})); }
  at::Tensor hidden;
};

TEST(LeafFitTest, WhereNoMemberIsKnownOnlyARedirectTakesALeafOfTheSameType) {
  Unknown module;
  const SwapPlan plan(module);
  const Slot& slot = plan.slots()[0];
  const InstallRules redirect{.call = "test", .check_shapes = false, .redirect = true};
  EXPECT_FALSE(fits(slot, at::ones({2}), false, {.call = "test"}));
  EXPECT_TRUE(fits(slot, at::ones({2}), false, redirect));
  EXPECT_FALSE(fits(slot, at::ones({2}, at::kDouble), false, redirect));
  EXPECT_FALSE(fits(slot, at::ones({3}), false, redirect));
}

}  // namespace
}  // namespace graft::internal
