#include "functional/internal/module_set.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <typeinfo>

namespace graft::internal {
namespace {

using torch::nn::Linear;
using torch::nn::ModuleList;

TEST(ModuleSetTest, FindsAModuleThatTwoTreesShare) {
  const Linear shared(1, 1);
  ModuleList first(Linear(1, 1), shared), second(shared, torch::nn::ReLU());
  const ModuleSet left(*first), right(*second);
  ASSERT_NE(left.common_with(right), nullptr);
  EXPECT_EQ(left.common_with(right)->module, shared.get());
}

TEST(ModuleSetTest, FindsParentsAndChildren) {
  Linear layer(1, 1);
  ModuleList inner(layer), outer(torch::nn::ReLU(), inner);
  const ModuleSet root(*outer), child(*layer);
  ASSERT_NE(root.common_with(child), nullptr);
  EXPECT_EQ(root.common_with(child)->module, layer.get());
  EXPECT_TRUE(*root.common_with(child)->type == typeid(torch::nn::LinearImpl));
  EXPECT_EQ(child.common_with(root)->module, layer.get());
}

TEST(ModuleSetTest, FindsParentsBeforeChildren) {
  Linear layer(1, 1);
  ModuleList inner(layer), outer(inner), other(torch::nn::ReLU(), inner);
  const ModuleSet left(*outer), right(*other);
  EXPECT_EQ(left.common_with(right)->module, inner.get());
}

TEST(ModuleSetTest, FindsNothingInDisjointTrees) {
  ModuleList first(Linear(1, 1), torch::nn::ReLU()), second(Linear(1, 1));
  EXPECT_EQ(ModuleSet(*first).common_with(ModuleSet(*second)), nullptr);
}

TEST(ModuleSetTest, HasANumberOfItsOwn) {
  Linear layer(1, 1);
  EXPECT_NE(ModuleSet(*layer).number(), ModuleSet(*layer).number());
}

}  // namespace
}  // namespace graft::internal
