#include "functional/functional_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::nn::Linear;

/// A class without annotation that holds a parameter, a buffer and a known sub-module.
struct RawImpl : torch::nn::Module {
  RawImpl() {
    w = register_parameter("w", torch::randn({3}, torch::kDouble));
    shift = register_buffer("shift", torch::randn({3}, torch::kDouble));
    fc = register_module("fc", Linear(3, 2));
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) { return fc(torch::stack({x * w, shift.expand_as(x)}).sum(0)); }
  Tensor w, shift;
  Linear fc = nullptr;
};

TensorDict random_like(const TensorDict& tree) {
  TensorDict random = tree;
  for (const auto& [path, leaf] : tree.leaves()) random.set(path, torch::randn_like(leaf.detach()));
  return random;
}

Tensor by_hand(const TensorDict& p, const Tensor& x) {
  return torch::linear(x * p["w"] + p["shift"], p["fc.weight"], p["fc.bias"]);
}

using ::graft::testing::ThrowsWith;

TEST(FunctionalCallTiesTest, FollowsATieThatAGuardMade) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  const Tensor x = torch::ones({1, 2}), two = torch::full({2, 2}, 2.), bias = torch::zeros({2});
  const TensorDict biases({{"0.bias", bias}, {"1.bias", bias}});
  const auto forward = [&] { return functional_call(net, TensorDict({{"0.weight", two}, {"0.bias", bias}}), x); };
  const Tensor untied = forward();
  {
    const Tensor one = torch::ones({2, 2});
    const ToModuleGuard guard(TensorDict({{"0.weight", one}, {"1.weight", one}, {"0.bias", bias}, {"1.bias", bias}}),
                              *net, {.preserve_module_state = false});
    EXPECT_TRUE(forward().equal(x.matmul(two).matmul(two)));  // 1.weight follows
    EXPECT_THAT(
        [&] {
          functional_call(net, TensorDict({{"0.weight", two}, {"1.weight", one}}), x);
        },
        ThrowsWith<c10::ValueError>("\"0.weight\" and \"1.weight\" stand for one parameter"));
  }
  EXPECT_TRUE(forward().equal(untied));
}

TEST(FunctionalCallTiesTest, FollowsATieThatAWriteForGoodMade) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  const Tensor x = torch::ones({1, 2}), one = torch::ones({2, 2}), two = torch::full({2, 2}, 2.);
  const TensorDict before = from_module(*net);
  const auto forward = [&] { return functional_call(net, TensorDict({{"0.weight", two}}), x); };
  const Tensor untied = forward();
  to_module(TensorDict({{"0.weight", one}, {"1.weight", one}}), *net, {.preserve_module_state = false});
  EXPECT_TRUE(functional_call(net, TensorDict({{"0.weight", two}}), x)
                  .equal((x.matmul(two) + before["0.bias"]).matmul(two) + before["1.bias"]));
  to_module(before, *net);
  EXPECT_TRUE(forward().equal(untied));
}

TEST(FunctionalCallTest, RunsAnUnknownClassWithOtherLeaves) {
  RawImpl module;
  const Tensor x = torch::randn({4, 3}, torch::kDouble);
  const TensorDict before = from_module(module);
  const TensorDict leaves = random_like(before);
  EXPECT_TRUE(functional_call(module, leaves, x).allclose(by_hand(leaves, x), 0, 1e-12));
  EXPECT_TRUE(module.forward(x).allclose(by_hand(before, x), 0, 1e-12));
  for (const auto& [path, leaf] : from_module(module).leaves()) EXPECT_TRUE(leaf.is_same(before[path])) << path;
}

TEST(FunctionalCallTest, TakesHoldersSharedPointersAndSeveralTrees) {
  torch::nn::BatchNorm1d norm(3);
  const TensorDict params = random_like(from_module(*norm, State::kParameters));
  const TensorDict buffers = from_module(*norm, State::kBuffers);
  const Tensor x = torch::randn({4, 3});
  norm->eval();
  const Tensor expected = torch::batch_norm(x, params["weight"], params["bias"], buffers["running_mean"],
                                            buffers["running_var"], false, 0.1, 1e-5, false);
  EXPECT_TRUE(functional_call(norm, {params, buffers}, x).equal(expected));
  EXPECT_TRUE(functional_call(norm.ptr(), {params}, x).equal(expected));
  EXPECT_TRUE(functional_call(*norm, params, x).equal(expected));
}

TEST(FunctionalCallTest, GivesGradientsToTheLeaves) {
  RawImpl module;
  const Tensor x = torch::randn({4, 3}, torch::kDouble);
  TensorDict leaves = random_like(from_module(module));
  for (const Tensor& leaf : leaves.values()) leaf.set_requires_grad(true);
  const auto gradients = torch::autograd::grad({functional_call(module, leaves, x).square().sum()}, leaves.values());
  const auto expected = torch::autograd::grad({by_hand(leaves, x).square().sum()}, leaves.values());
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_TRUE(gradients[i].allclose(expected[i], 0, 1e-12));
}

TEST(FunctionalCallTest, WorksUnderGrad) {
  RawImpl module;
  const Tensor x = torch::randn({4, 3}, torch::kDouble);
  const TensorDict leaves = random_like(from_module(module));
  const TensorDict gradients =
      grad([&](const TensorDict& p) { return functional_call(module, p, x).square().sum(); })(leaves);
  const TensorDict expected = grad([&](const TensorDict& p) { return by_hand(p, x).square().sum(); })(leaves);
  for (const auto& [path, leaf] : gradients.leaves()) EXPECT_TRUE(leaf.allclose(expected[path], 0, 1e-12)) << path;
}

TEST(FunctionalCallTest, ReturnsTheLeafForAParameterThatIsReturnedAsItIs) {
  struct Bare : RawImpl {
    Tensor forward() { return w; }
  } module;
  const Tensor leaf = torch::zeros({3}, torch::kDouble);
  EXPECT_TRUE(functional_call(module, TensorDict({{"w", leaf}})).is_same(leaf));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    first = register_module("first", Linear(3, 3));
    again = register_module("again", std::make_shared<torch::nn::ParameterListImpl>());
    again->append(first->weight);
  }
  Tensor forward(const Tensor& x) { return torch::linear(first(x), (*again)[0]); }
  Linear first = nullptr;
  std::shared_ptr<torch::nn::ParameterListImpl> again;
};

TEST(FunctionalCallTest, TiesTheOtherNamesOfAParameter) {
  TiedImpl module;
  const Tensor x = torch::randn({2, 3}), leaf = torch::randn({3, 3}), bias = torch::zeros({3});
  const Tensor expected = torch::linear(torch::linear(x, leaf, bias), leaf);
  EXPECT_TRUE(functional_call(module, TensorDict({{"first.weight", leaf}, {"first.bias", bias}}), x).equal(expected));
  EXPECT_TRUE(functional_call(module, TensorDict({{"again.0", leaf}, {"first.bias", bias}}), x).equal(expected));
  EXPECT_THAT(
      [&] {
        functional_call(module, TensorDict({{"first.weight", leaf}, {"again.0", torch::ones({3, 3})}}), x);
      },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("first.weight"), HasSubstr("again.0"))));
}

TEST(FunctionalCallTest, LeavesTheModuleWhenForwardThrows) {
  RawImpl module;
  const TensorDict before = from_module(module);
  EXPECT_ANY_THROW(functional_call(module, random_like(before), torch::randn({4, 7}, torch::kDouble)));
  for (const auto& [path, leaf] : from_module(module).leaves()) EXPECT_TRUE(leaf.is_same(before[path])) << path;
  EXPECT_TRUE((module.w + 0).equal(before["w"]));
}

TEST(FunctionalCallTest, RefusesOtherShapesAndTypesWhereItRedirects) {
  RawImpl module;
  EXPECT_THAT(
      [&] {
        functional_call(module, TensorDict({{"w", torch::ones({3})}}), torch::ones({1, 3}));
      },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("\"w\""), HasSubstr("Float"), HasSubstr("Double"))));
}

}  // namespace
}  // namespace graft
