// What tensors contain is exchanged as it was before the first change, and comes back.
#include "functional/internal/content_swap.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace graft::internal {
namespace {

using at::Tensor;

Tensor filled(double value) { return torch::full({2}, value); }

bool holds(const Tensor& tensor, double value) { return torch::equal(tensor.detach(), filled(value)); }

TEST(ContentSwap, CopiesTensorsIntoEachOther) {
  const Tensor a = filled(1), b = filled(2);
  ContentSwap swap;
  swap.copy({{a, b}, {b, a}}, /*non_blocking=*/false);
  EXPECT_TRUE(holds(a, 2) && holds(b, 1));
  swap.restore();
  EXPECT_TRUE(holds(a, 1) && holds(b, 2));
}

TEST(ContentSwap, CopiesViewsOfTensorsThatItWrites) {
  const Tensor a = torch::tensor({1.0, 2.0}), b = filled(0);
  ContentSwap swap;
  swap.copy({{a, a.flip(0)}, {b, a.narrow(0, 0, 1).expand({2})}}, /*non_blocking=*/false);
  EXPECT_TRUE(torch::equal(a, torch::tensor({2.0, 1.0})));
  EXPECT_TRUE(holds(b, 1));
}

TEST(ContentSwap, AliasesTensorsToEachOther) {
  const Tensor a = filled(1), b = filled(2);
  ContentSwap swap;
  swap.alias({{a, b}, {b, a}});
  EXPECT_TRUE(holds(a, 2) && holds(b, 1));
  b.fill_(3);
  EXPECT_TRUE(holds(a, 2)) << "they share a storage now";
  swap.restore();
  EXPECT_TRUE(holds(a, 3) && holds(b, 2)) << "what was written through an alias stays, as with any handle";
}

TEST(ContentSwap, ShowsWhatATensorContained) {
  const Tensor copied = filled(1), aliased = filled(2), other = filled(3);
  ContentSwap copies, aliases;
  copies.copy({{copied, other}}, /*non_blocking=*/false);
  aliases.alias({{aliased, other}});
  EXPECT_TRUE(holds(*copies.old_content(copied), 1));
  EXPECT_TRUE(holds(*aliases.old_content(aliased), 2));
  EXPECT_EQ(copies.old_content(other), nullptr);
}

TEST(ContentSwap, RestoresATensorThatWasGivenOtherData) {
  Tensor a = filled(1);
  const void* const place = a.const_data_ptr();
  ContentSwap swap;
  swap.copy({{a, filled(2)}}, /*non_blocking=*/false);
  a.set_data(filled(5));
  swap.restore();
  EXPECT_TRUE(holds(a, 1));
  EXPECT_EQ(a.const_data_ptr(), place);
}

TEST(ContentSwap, KeepsWhatItIsToldToKeep) {
  const Tensor a = filled(1);
  ContentSwap swap;
  swap.copy({{a, filled(2)}}, /*non_blocking=*/false);
  swap.keep();
  swap.restore();
  EXPECT_TRUE(holds(a, 2));
  EXPECT_EQ(swap.old_content(a), nullptr);
}

TEST(ContentSwap, LeavesFlagsAlone) {
  const Tensor a = filled(1).requires_grad_(), b = filled(2);
  ContentSwap swap;
  swap.alias({{a, b}});
  EXPECT_TRUE(a.requires_grad() && a.is_leaf());
  EXPECT_FALSE(b.requires_grad());
}

}  // namespace
}  // namespace graft::internal
