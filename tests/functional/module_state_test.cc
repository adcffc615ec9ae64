#include "functional/module_state.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace graft {
namespace {

using torch::Tensor;
using torch::nn::Linear;
using Names = std::vector<std::string>;

/// Registers its own tensors after its sub-modules, and buffers before parameters.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc = register_module("fc", Linear(3, 2));
    norm = register_module("norm", torch::nn::BatchNorm1d(2));
    register_module("activation", torch::nn::ReLU());
    shift = register_buffer("shift", torch::zeros({2}));
    z = register_parameter("z", torch::ones({2}));
    a = register_parameter("a", torch::ones({1}), /*requires_grad=*/false);
  }
  Linear fc = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
  Tensor shift, z, a;
};

Names names_of(const TensorDict& tree) {
  Names names;
  for (const auto& [path, leaf] : tree.leaves()) names.push_back(path);
  return names;
}

TEST(ModuleStateTest, ReadsEachModuleBeforeItsSubModulesInOrderOfRegistration) {
  NetImpl net;
  EXPECT_EQ(names_of(from_module(net)), (Names{"z", "a", "shift", "fc.weight", "fc.bias", "norm.weight", "norm.bias",
                                               "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
}

TEST(ModuleStateTest, ReadsWhatNamedParametersAndNamedBuffersRead) {
  NetImpl net;
  const auto expect_equal = [](const TensorDict& tree, const torch::OrderedDict<std::string, Tensor>& expected) {
    EXPECT_EQ(names_of(tree), expected.keys());
    for (const auto& item : expected) EXPECT_TRUE(tree[item.key()].is_same(item.value())) << item.key();
  };
  expect_equal(from_module(net, State::kParameters), net.named_parameters());
  expect_equal(from_module(net, State::kBuffers), net.named_buffers());
}

TEST(ModuleStateTest, HoldsTheModulesOwnTensorsWithTheirFlags) {
  NetImpl net;
  const TensorDict state = from_module(net);
  EXPECT_TRUE(state["fc.weight"].is_same(net.fc->weight));
  EXPECT_TRUE(state["norm.running_var"].is_same(net.norm->running_var));
  EXPECT_TRUE(state["z"].requires_grad());
  EXPECT_FALSE(state["a"].requires_grad());
  EXPECT_FALSE(state["shift"].requires_grad());
  EXPECT_TRUE(state.batch_size().empty());
}

TEST(ModuleStateTest, ReadsTheTensorsOfNow) {
  Linear fc(3, 2);
  const TensorDict before = from_module(*fc);
  fc->register_parameter("extra", torch::ones({2}));
  const TensorDict after = from_module(*fc);
  EXPECT_EQ(names_of(after), (Names{"weight", "bias", "extra"}));
  EXPECT_EQ(names_of(before), (Names{"weight", "bias"}));
}

TEST(ModuleStateTest, LeavesOutNamesThatHoldNothing) {
  Linear fc(torch::nn::LinearOptions(3, 2).bias(false));
  EXPECT_EQ(names_of(from_module(*fc)), (Names{"weight"}));
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(2).affine(false).track_running_stats(false));
  EXPECT_TRUE(from_module(*norm).empty());
}

TEST(ModuleStateTest, IsEmptyForAModuleWithoutState) {
  torch::nn::ReLU relu;
  EXPECT_TRUE(from_module(*relu).empty());
  EXPECT_TRUE(from_module(*Linear(3, 2), State::kBuffers).empty());
}

TEST(ModuleStateTest, ShowsASharedModuleUnderEachOfItsNames) {
  const Linear fc(3, 2);
  torch::nn::Sequential net(fc, torch::nn::ReLU(), fc);
  const TensorDict state = from_module(*net);
  EXPECT_EQ(names_of(state), (Names{"0.weight", "0.bias", "2.weight", "2.bias"}));
  EXPECT_TRUE(state["0.weight"].is_same(state["2.weight"]));
}

TEST(ModuleStateTest, ShowsATiedParameterUnderEachOfItsNames) {
  struct TiedImpl : torch::nn::Module {
    TiedImpl() {
      w = register_parameter("w", torch::ones({2}));
      again = register_parameter("again", w);
    }
    Tensor w, again;
  } tied;
  const TensorDict state = from_module(tied);
  EXPECT_EQ(names_of(state), (Names{"w", "again"}));
  EXPECT_TRUE(state["w"].is_same(state["again"]));
}

TEST(ModuleStateTest, SharesOneTableOfKeysBetweenReads) {
  NetImpl net;
  for (const State state : {State::kAll, State::kParameters, State::kBuffers}) {
    EXPECT_EQ(from_module(net, state).keys(), from_module(net, state).keys());
  }
}

}  // namespace
}  // namespace graft
