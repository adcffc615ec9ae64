#include "vmap/stacked_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "functional/module_state.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;
using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;

/// Norms that differ in every value.
std::vector<BatchNorm1d> random_norms(int count) {
  const torch::NoGradGuard no_grad;
  std::vector<BatchNorm1d> norms;
  for (int i = 0; i < count; ++i) {
    norms.emplace_back(2);
    for (const auto& [path, leaf] : from_module(*norms.back()).leaves()) Tensor(leaf).copy_(torch::randn({2})[0] + i);
  }
  return norms;
}

TEST(StackedStateTest, StacksTheLeavesOfEveryModule) {
  const auto norms = random_norms(3);
  const StackedState state = stack_module_state(norms);
  EXPECT_EQ(state.params.batch_size(), std::vector<int64_t>{3});
  EXPECT_EQ(state.buffers.batch_size(), std::vector<int64_t>{3});
  EXPECT_EQ(state.params.size(), 2);
  EXPECT_EQ(state.buffers.size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(state.params["weight"][i].equal(norms[i]->weight));
    EXPECT_TRUE(state.params["bias"][i].equal(norms[i]->bias));
    EXPECT_TRUE(state.buffers["running_mean"][i].equal(norms[i]->running_mean));
    EXPECT_TRUE(state.buffers["running_var"][i].equal(norms[i]->running_var));
    EXPECT_TRUE(state.buffers["num_batches_tracked"][i].equal(norms[i]->num_batches_tracked));
  }
}

TEST(StackedStateTest, SharesNothingWithTheModules) {
  const auto norms = random_norms(1);  // of one module a stack could be a view
  const TensorDict before = from_module(*norms[0].ptr()).map([](const Tensor& leaf) { return leaf.detach().clone(); });
  const StackedState state = stack_module_state(norms);
  const torch::NoGradGuard no_grad;
  for (const TensorDict* tree : {&state.params, &state.buffers}) {
    for (const auto& [path, leaf] : tree->leaves()) Tensor(leaf).fill_(7);
  }
  EXPECT_THAT(from_module(*norms[0].ptr()), TensorDictEq(before));
}

TEST(StackedStateTest, HasFreshLeavesThatRequireGradAsInTheModules) {
  std::vector<Linear> nets{Linear(2, 2), Linear(2, 2)};
  for (Linear& net : nets) net->bias.set_requires_grad(false);
  const StackedState state = stack_module_state(nets);
  EXPECT_TRUE(state.params["weight"].requires_grad());
  EXPECT_TRUE(state.params["weight"].is_leaf());
  EXPECT_FALSE(state.params["bias"].requires_grad());
}

TEST(StackedStateTest, TakesModulesHoldersAndSharedPointers) {
  const std::vector<Linear> holders{Linear(2, 3), Linear(2, 3)};
  const TensorDict expected = stack_module_state(holders).params;
  const std::vector<std::shared_ptr<torch::nn::Module>> pointers{holders[0].ptr(), holders[1].ptr()};
  EXPECT_THAT(stack_module_state(pointers).params, TensorDictEq(expected));
  const std::vector<torch::nn::Module*> raw{holders[0].ptr().get(), holders[1].ptr().get()};
  EXPECT_THAT(stack_module_state(raw).params, TensorDictEq(expected));
}

TEST(StackedStateTest, RefusesAnEmptyList) {
  EXPECT_THAT([] { stack_module_state(std::vector<Linear>{}); },
              ThrowsWith<c10::ValueError>("stack_module_state", "at least one"));
}

TEST(StackedStateTest, NamesAModuleOfAnotherClass) {
  const std::vector<std::shared_ptr<torch::nn::Module>> nets{Linear(2, 2).ptr(), BatchNorm1d(2).ptr()};
  EXPECT_THAT([&] { stack_module_state(nets); },
              ThrowsWith<c10::ValueError>("module 1 is a torch::nn::BatchNorm1d", "module 0 is a torch::nn::Linear"));
}

TEST(StackedStateTest, ListsEveryDifferenceOfEveryModule) {
  std::vector<Linear> nets;
  for (int i = 0; i < 6; ++i) nets.emplace_back(2, 2);
  nets[1]->eval();
  nets[2] = Linear(3, 2);
  nets[3]->to(torch::kDouble);
  nets[4]->bias.set_requires_grad(false);
  nets[5] = Linear(torch::nn::LinearOptions(2, 2).bias(false));
  EXPECT_THAT([&] { stack_module_state(nets); },
              ThrowsWith<c10::ValueError>("module 1 is in eval mode", "module 2:", "[2, 3]", "module 3:", "double",
                                          "module 4:", "requires_grad", "module 5:", "\"bias\""));
}

TEST(StackedStateTest, UnstacksWhatItStacked) {
  const auto from = random_norms(3), to = random_norms(3);
  std::vector<Tensor> own;
  for (const auto& norm : to) own.push_back(norm->weight);
  unstack_module_state(stack_module_state(from), to);
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(from_module(*to[i].ptr()), TensorDictEq(from_module(*from[i].ptr())));
    EXPECT_TRUE(to[i]->weight.is_same(own[i]));  // written in place
    EXPECT_TRUE(to[i]->weight.requires_grad() && to[i]->weight.is_leaf());
  }
}

TEST(StackedStateTest, SharesNothingWithModulesItWasUnstackedInto) {
  const auto norms = random_norms(2);
  const StackedState state = stack_module_state(norms);
  unstack_module_state(state, norms);
  const Tensor before = norms[0]->weight.detach().clone();
  state.params["weight"].detach().fill_(7);
  EXPECT_TRUE(norms[0]->weight.equal(before));
}

TEST(StackedStateTest, RefusesAnotherNumberOfModules) {
  const StackedState state = stack_module_state(random_norms(3));
  const auto two = random_norms(2);
  const TensorDict before = from_module(*two[0].ptr()).map([](const Tensor& leaf) { return leaf.detach().clone(); });
  EXPECT_THAT([&] { unstack_module_state(state, two); },
              ThrowsWith<c10::ValueError>("unstack_module_state", "batch size [3], expected [2]"));
  EXPECT_THAT(from_module(*two[0].ptr()), TensorDictEq(before));
  EXPECT_THAT([&] { unstack_module_state(state, std::vector<BatchNorm1d>{}); },
              ThrowsWith<c10::ValueError>("unstack_module_state", "at least one"));
}

TEST(StackedStateTest, CopiesNothingIfALeafDoesNotFit) {
  const std::vector<Linear> wide{Linear(3, 2), Linear(3, 2)};
  std::vector<Linear> nets{Linear(3, 2), Linear(2, 2)};  // only the second does not fit
  const Tensor before = nets[0]->bias.detach().clone();
  EXPECT_THAT([&] { unstack_module_state(stack_module_state(wide), nets); },
              ThrowsWith<c10::ValueError>("\"weight\"", "[2, 3]", "[2, 2]"));
  EXPECT_TRUE(nets[0]->bias.equal(before));
}

}  // namespace
}  // namespace graft
