// from_modules, beside what Python's TensorDict.from_modules does in the same cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tensordict/shape.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/ensemble.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;

std::vector<Sequential> make_nets(int count) {
  std::vector<Sequential> nets;
  for (int i = 0; i < count; ++i) nets.push_back(Sequential(Linear(3, 4), BatchNorm1d(4), Linear(4, 2)));
  return nets;
}

template <typename Handle>
TensorDict state_of(const Handle& module) {
  return from_module(*module.ptr());
}

/// Gives the module leaves without data. (LibTorch's modules cannot be moved there.)
void move_to_meta(torch::nn::Module& module) {
  to_module(from_module(module).map([](const Tensor& leaf) { return leaf.detach().to(torch::kMeta); }), module);
}

std::vector<std::string> paths_of(const TensorDict& tree) {
  std::vector<std::string> paths;
  for (const auto& [path, leaf] : tree.leaves()) paths.push_back(path);
  return paths;
}

/// Two Linears whose weights are one tensor.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    to_module(TensorDict({{"decoder.weight", encoder->weight}}), *this);
  }
  Tensor forward(const Tensor& x) { return decoder->forward(encoder->forward(x)); }
  Linear encoder{3, 3}, decoder{3, 3};
};
TORCH_MODULE(Tied);

// Q1
TEST(FromModulesTest, RefusesAnEmptyList) {
  EXPECT_THAT([] { from_modules(std::vector<Linear>{}); }, ThrowsWith<c10::ValueError>("from_modules", "at least one"));
}

// Q2, M2
TEST(FromModulesTest, StacksParametersAndBuffersInTheOrderOfTheModule) {
  const auto nets = make_nets(3);
  const TensorDict state = from_modules(nets);
  EXPECT_EQ(state.batch_size(), std::vector<int64_t>{3});
  EXPECT_EQ(state.subtree("1").batch_size(), std::vector<int64_t>{3});
  EXPECT_EQ(paths_of(state), paths_of(state_of(nets[0])));
  for (int i = 0; i < 3; ++i) {
    for (const auto& [path, leaf] : state_of(nets[i]).leaves()) EXPECT_TRUE(state[path][i].equal(leaf)) << path;
  }
  EXPECT_EQ(state["1.num_batches_tracked"].scalar_type(), torch::kLong);
}

// Q2
TEST(FromModulesTest, MakesFreshLeavesThatRequireGradAsInTheModules) {
  auto nets = make_nets(2);
  for (Sequential& net : nets) net[0]->as<Linear>()->bias.set_requires_grad(false);
  const TensorDict state = from_modules(nets);
  for (const auto& [path, leaf] : state.leaves()) {
    EXPECT_TRUE(leaf.is_leaf()) << path;
    EXPECT_EQ(leaf.requires_grad(), state_of(nets[0])[path].requires_grad()) << path;
  }
  state["0.weight"].sum().backward();
  EXPECT_TRUE(state["0.weight"].grad().equal(torch::ones({2, 4, 3})));
  EXPECT_FALSE(nets[0][0]->as<Linear>()->weight.grad().defined());
}

// Q2
TEST(FromModulesTest, AgreesWithStackModuleState) {
  const auto nets = make_nets(2);
  const auto [params, buffers] = stack_module_state(nets);
  const TensorDict state = from_modules(nets);
  EXPECT_EQ(state.size(), params.size() + buffers.size());
  for (const TensorDict* part : {&params, &buffers}) {
    for (const auto& [path, leaf] : part->leaves()) EXPECT_TRUE(state[path].equal(leaf)) << path;
  }
}

// Q3
TEST(FromModulesTest, ListsEveryMissingNameAndEveryOtherShape) {
  const std::vector<Linear> nets{Linear(2, 2), Linear(3, 4), Linear(LinearOptions(2, 2).bias(false))};
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>("from_modules: the modules differ",
                                          "module 1:", "\"weight\": shape [4, 3], expected [2, 2]",
                                          "\"bias\": shape [4], expected [2]", "module 2:", "\"bias\": missing"));
  const std::vector<Linear> other_first{nets[2], nets[0]};
  EXPECT_THAT([&] { from_modules(other_first); }, ThrowsWith<c10::ValueError>("module 1:", "\"bias\": unexpected"));
}

// Q4: Python promotes dtypes without a word.
TEST(FromModulesTest, RefusesOtherDtypesAndDevices) {
  const std::vector<Linear> nets{Linear(2, 2), Linear(2, 2), Linear(2, 2)};
  Linear(nets[1])->to(torch::kDouble);
  move_to_meta(*nets[2].ptr());
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>("module 1:\n  \"weight\": dtype double, expected float", "\"bias\": dtype",
                                          "module 2:\n  \"weight\": device meta, expected cpu", "\"bias\": device"));
}

// Q2, Q5: Python takes the flags, the mode and the class of the first module.
TEST(FromModulesTest, RefusesOtherFlagsModesAndClasses) {
  std::vector<std::shared_ptr<torch::nn::Module>> nets{
      Sequential(Linear(2, 2), torch::nn::Tanh()).ptr(), Sequential(Linear(2, 2), torch::nn::ReLU()).ptr(),
      Sequential(Linear(2, 2), torch::nn::Tanh()).ptr(), Sequential(Linear(2, 2), torch::nn::Tanh()).ptr(),
      Linear(2, 2).ptr()};
  nets[2]->children()[1]->eval();
  nets[3]->eval();
  nets[3]->children()[0]->parameters()[1].set_requires_grad(false);
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>(
                  "sub-module \"1\" of module 1 is a torch::nn::ReLUImpl, sub-module \"1\" of module 0 is a "
                  "torch::nn::TanhImpl",
                  "sub-module \"1\" of module 2 is in eval mode, sub-module \"1\" of module 0 is in train mode",
                  "module 3 is in eval mode, module 0 is in train mode",
                  "module 3:\n  \"0.bias\": requires_grad false, expected true", "module 4 is a torch::nn::LinearImpl",
                  "module 4 has no sub-module \"1\", module 0 has one", "\"weight\": unexpected"));
}

TEST(FromModulesTest, SaysOnceThatAModuleIsInAnotherModeWithAllBelow) {
  auto nets = make_nets(2);
  nets[1]->eval();
  EXPECT_THAT([&] { from_modules(nets); },
              ::testing::ThrowsMessage<c10::ValueError>(::testing::Not(::testing::HasSubstr("sub-module"))));
}

// Q6
TEST(FromModulesTest, ExpandsLeavesThatAreTheSameTensorInAllModules) {
  Linear shared(2, 2);
  const std::vector<Sequential> nets{Sequential(shared, Linear(2, 2)), Sequential(shared, Linear(2, 2))};
  const TensorDict state = from_modules(nets, {.expand_identical = true});
  EXPECT_EQ(state["0.weight"].sizes(), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(state["0.weight"].stride(0), 0);
  EXPECT_EQ(state["0.weight"].data_ptr(), shared->weight.data_ptr());
  EXPECT_TRUE(state["1.weight"].is_leaf());

  const auto forward = [&](const TensorDict& leaves, const Tensor& x) { return functional_call(nets[0], leaves, x); };
  const Tensor x = torch::randn({5, 2});
  vmap(forward, {.in_dims = {0, std::nullopt}})(state, x).sum().backward();
  const Tensor gradient = shared->weight.grad().clone();
  shared->zero_grad();
  for (const Sequential& net : nets) Sequential(net)->forward(x).sum().backward();
  EXPECT_TRUE(gradient.allclose(shared->weight.grad()));
}

// Q6: without the option they are copied.
TEST(FromModulesTest, CopiesIdenticalLeavesUnlessToldToExpand) {
  const Linear shared(2, 2);
  const TensorDict state = from_modules(std::vector<Linear>{shared, shared});
  EXPECT_TRUE(state["weight"].is_contiguous() && state["weight"].is_leaf());
  EXPECT_FALSE(state["weight"].is_alias_of(shared->weight));
}

// Q6, B7
TEST(FromModulesTest, ExpandsBuffersToo) {
  const BatchNorm1d shared(2);
  const TensorDict state = from_modules(std::vector<BatchNorm1d>{shared, shared}, {.expand_identical = true});
  EXPECT_TRUE(state["running_mean"].is_alias_of(shared->running_mean));
  EXPECT_EQ(state["num_batches_tracked"].sizes(), std::vector<int64_t>{2});
  EXPECT_EQ(state["num_batches_tracked"].scalar_type(), torch::kLong);
}

// Q7: what a lazy stack is for.
TEST(FromModulesTest, LeavesGradientsForTheModulesToAStackOfTheirTrees) {
  const std::vector<Linear> nets{Linear(2, 2), Linear(2, 2)};
  const TensorDict state = stack({state_of(nets[0]), state_of(nets[1])});
  (state["weight"] * torch::arange(1, 3).view({2, 1, 1})).sum().backward();
  EXPECT_TRUE(nets[0]->weight.grad().equal(torch::full({2, 2}, 1.)));
  EXPECT_TRUE(nets[1]->weight.grad().equal(torch::full({2, 2}, 2.)));
}

// Q8: Python installs the stacked leaves, W19.
TEST(FromModulesTest, IsRefusedByToModuleOutsideVmap) {
  const std::vector<Linear> nets{Linear(3, 2), Linear(3, 2)};
  const TensorDict before = state_of(nets[0]);
  EXPECT_THAT([&] { ToModuleGuard guard(from_modules(nets), *nets[0].ptr()); },
              ThrowsWith<c10::ValueError>("\"weight\": shape [2, 2, 3], expected [2, 3]"));
  EXPECT_TRUE(nets[0]->weight.is_same(before["weight"]));
}

// Q9, M3
TEST(FromModulesTest, GivesAnEmptyTreeForModulesWithoutState) {
  const TensorDict state = from_modules(std::vector<torch::nn::Tanh>(3));
  EXPECT_TRUE(state.empty());
  EXPECT_EQ(state.batch_size(), std::vector<int64_t>{3});
  const std::vector<Sequential> nets{Sequential(Linear(2, 2), torch::nn::Tanh()),
                                     Sequential(Linear(2, 2), torch::nn::Tanh())};
  EXPECT_EQ(paths_of(from_modules(nets)), (std::vector<std::string>{"0.weight", "0.bias"}));
}

// Q9
TEST(FromModulesTest, StacksMetaModules) {
  const auto nets = make_nets(2);
  for (const Sequential& net : nets) move_to_meta(*net.ptr());
  const TensorDict state = from_modules(nets);
  EXPECT_TRUE(state["0.weight"].is_meta());
  EXPECT_EQ(state["0.weight"].sizes(), (std::vector<int64_t>{2, 4, 3}));
}

// Q11
TEST(FromModulesTest, IsWrittenBackToTheModules) {
  const auto from = make_nets(3), to = make_nets(3);
  const Tensor own = state_of(to[1])["0.weight"];
  unstack_module_state(from_modules(from), to);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(state_of(to[i]), TensorDictEq(state_of(from[i])));
  EXPECT_TRUE(state_of(to[1])["0.weight"].is_same(own));
  EXPECT_THAT([&] { unstack_module_state(from_modules(from), make_nets(2)); },
              ThrowsWith<c10::ValueError>("batch size [3], expected [2]"));
}

// Q12
TEST(FromModulesTest, ScattersTheGradientsOfAMember) {
  const std::vector<Linear> nets{Linear(2, 2), Linear(2, 2)};
  const TensorDict state = from_modules(nets);
  const TensorDict member = unbind(state)[1];
  functional_call(nets[0], member, torch::ones({1, 2})).sum().backward();
  EXPECT_TRUE(state["weight"].grad()[0].equal(torch::zeros({2, 2})));
  EXPECT_TRUE(state["weight"].grad()[1].equal(torch::ones({2, 2})));
}

// M6, A1
TEST(FromModulesTest, TrainsAnEnsembleThroughTensorDictParams) {
  std::vector<Linear> nets{Linear(3, 2), Linear(3, 2)};
  const TensorDictParams params(from_modules(nets));
  torch::optim::SGD optimizer(params->parameters(), /*lr=*/0.1);
  const Tensor x = torch::randn({5, 3});
  const auto forward = [&](const TensorDict& leaves, const Tensor& input) {
    return functional_call(nets[0], leaves, input).square().sum();
  };
  vmap(forward, {.in_dims = {0, std::nullopt}})(params->tree(), x).sum().backward();
  optimizer.step();
  for (int i = 0; i < 2; ++i) {
    torch::optim::SGD own(nets[i]->parameters(), /*lr=*/0.1);
    nets[i]->forward(x).square().sum().backward();
    own.step();
    EXPECT_THAT(unbind(params->tree())[i], TensorDictNear(state_of(nets[i]), 1e-5));
  }
  const std::vector<TensorDictParams> two{params, params};
  EXPECT_EQ(from_modules(two)["weight"].sizes(), (std::vector<int64_t>{2, 2, 2, 3}));
}

// M7
TEST(FromModulesTest, TakesAnyName) {
  struct Module : torch::nn::Module {
    Module() {
      register_parameter("keys", torch::zeros({2}));
      register_buffer("size", torch::zeros({2}));
    }
  };
  const std::vector<std::shared_ptr<Module>> modules{std::make_shared<Module>(), std::make_shared<Module>()};
  EXPECT_EQ(paths_of(from_modules(modules)), (std::vector<std::string>{"keys", "size"}));
}

// T14: Python loses the tie.
TEST(FromModulesTest, KeepsTies) {
  const std::vector<Tied> nets(2);
  const TensorDict state = from_modules(nets);
  EXPECT_TRUE(state["decoder.weight"].is_same(state["encoder.weight"]));
  EXPECT_FALSE(state["decoder.bias"].is_same(state["encoder.bias"]));
  const TensorDict params = stack_module_state(nets).params;
  EXPECT_TRUE(params["decoder.weight"].is_same(params["encoder.weight"]));
}

TEST(FromModulesTest, RefusesOtherTies) {
  const std::vector<Tied> nets{Tied(), Tied()};
  to_module(TensorDict({{"decoder.weight", torch::ones({3, 3})}}), *nets[1].ptr());
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>(
                  "module 1:\n  \"decoder.weight\": a tensor of its own, expected the tensor of \"encoder.weight\""));
}

TEST(FromModulesTest, RunsTiedModulesUnderVmap) {
  std::vector<Tied> nets{Tied(), Tied()};
  const Ensemble ensemble(nets);
  const Tensor x = torch::randn({4, 3});
  const Tensor expected = torch::stack({nets[0]->forward(x), nets[1]->forward(x)});
  EXPECT_TRUE(ensemble.forward(x).allclose(expected, 1e-5, 1e-6));
  EXPECT_EQ(ensemble.parameters().size(), 3);  // each once, for an optimiser
}

}  // namespace
}  // namespace graft
