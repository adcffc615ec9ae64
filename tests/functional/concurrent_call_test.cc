// Concurrent calls against calls that swap, on one thread. See threads_test.cc for many.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/throws_with.h"
#include "tests/testing/torch_modules.h"

namespace graft {
namespace {

using testing::Snapshot;
using testing::ThrowsWith;
using testing::torch_modules;
using testing::TorchModule;
using torch::nn::Linear;

constexpr CallOptions kConcurrent{.concurrent = true};

/// Calls a module of the catalog by one `forward`.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(const TorchModule& module_entry)
      : entry(module_entry), body(register_module("body", module_entry.make())) {
    to(torch::kDouble);
  }
  Tensor forward(const std::vector<Tensor>& inputs) { return entry.call(*body, inputs); }

  const TorchModule& entry;
  std::shared_ptr<torch::nn::Module> body;
};

/// Returns leaves for all that the module holds: positive numbers, or copies of integers; parameters require grad.
TensorDict leaves_for(torch::nn::Module& module) {
  return from_module(module).map([](const Tensor& value) {
    if (!value.is_floating_point()) return value.clone();
    return torch::rand_like(value.detach()).add_(0.5).set_requires_grad(value.requires_grad());
  });
}

class ConcurrentCallModulesTest : public ::testing::TestWithParam<TorchModule> {};

TEST_P(ConcurrentCallModulesTest, ComputesWhatASwapComputes) {
  torch::manual_seed(0);
  NetImpl net(GetParam());
  const auto inputs = GetParam().inputs();
  const TensorDict leaves = leaves_for(net), expected_leaves = leaves.map([](const Tensor&leaf) {
    return leaf.detach().clone().set_requires_grad(leaf.requires_grad());
  });
  torch::manual_seed(1);
  const Tensor expected = functional_call(net, expected_leaves, inputs);
  const Snapshot before(net);
  torch::manual_seed(1);
  const Tensor result = functional_call(net, leaves, kConcurrent, inputs);
  EXPECT_TRUE(result.equal(expected));
  EXPECT_EQ(before.changes_to(Snapshot(net)), "");
  if (!result.requires_grad()) return;
  result.square().sum().backward();
  expected.square().sum().backward();
  for (const auto& [path, leaf] : leaves.leaves()) {
    const Tensor gradient = leaf.grad(), expected_gradient = expected_leaves[path].grad();
    ASSERT_EQ(gradient.defined(), expected_gradient.defined()) << path;
    if (gradient.defined()) {
      EXPECT_TRUE(gradient.to_dense().allclose(expected_gradient.to_dense(), 1e-12, 1e-12)) << path;
    }
    EXPECT_TRUE(leaf.equal(expected_leaves[path])) << path << ", which forward may have changed";
  }
}

INSTANTIATE_TEST_SUITE_P(TorchNn, ConcurrentCallModulesTest, ::testing::ValuesIn(torch_modules()),
                         [](const auto& instance) { return instance.param.name; });

TEST(ConcurrentCallTest, WritesToTheLeavesOfBuffers) {
  torch::nn::BatchNorm1d norm(3);
  const Tensor x = torch::randn({4, 3});
  const TensorDict leaves = from_module(*norm).map([](const Tensor& value) { return value.detach().clone(); });
  const Snapshot before(*norm);
  functional_call(norm, leaves, kConcurrent, x);
  EXPECT_EQ(before.changes_to(Snapshot(*norm)), "");
  EXPECT_TRUE(leaves["running_mean"].allclose(0.1 * x.mean(0)));
  EXPECT_EQ(leaves["num_batches_tracked"].item<int>(), 1);
}

TEST(ConcurrentCallTest, ListsLeavesThatCannotStandForTheirTensors) {
  torch::nn::Sequential net(Linear(3, 2), Linear(torch::nn::LinearOptions(2, 2).bias(false)));
  const TensorDict leaves({{"0.weight", torch::zeros({3, 2})},
                           {"0.bias", torch::zeros({2}, torch::kDouble)},
                           {"1.weight", torch::zeros({2, 2}, torch::kMeta)},
                           {"1.bias", torch::zeros({2})}});
  const Snapshot before(*net);
  EXPECT_THAT([&] { functional_call(net, leaves, kConcurrent, torch::ones({3})); },
              ThrowsWith<c10::ValueError>("functional_call", "SequentialImpl", "\"0.weight\": Float[3, 2]",
                                          "expected Float[2, 3]", "\"0.bias\": Double[2]", "\"1.weight\"", "meta",
                                          "\"1.bias\": the module holds no tensor", "The module is unchanged"));
  EXPECT_THAT(
      [&] {
        functional_call(net, TensorDict({{"2.weight", leaves["0.bias"]}}), kConcurrent, torch::ones({3}));
      },
      ThrowsWith<c10::IndexError>("functional_call", "\"2.weight\""));
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

TEST(ConcurrentCallTest, TreatsNamesOfOneParameterAsOne) {
  torch::nn::Sequential net(Linear(2, 2), Linear(2, 2));
  net[1]->as<Linear>()->weight = net[0]->as<Linear>()->weight;
  const Tensor x = torch::ones({2}), leaf = torch::randn({2, 2});
  const TensorDict own = from_module(*net);
  const Tensor expected = torch::linear(torch::linear(x, leaf, own["0.bias"]), leaf, own["1.bias"]);
  EXPECT_TRUE(functional_call(net, TensorDict({{"0.weight", leaf}}), kConcurrent, x).equal(expected));
  torch::nn::Sequential shared;
  const Linear layer(2, 2);
  shared->push_back(layer);
  shared->push_back(layer);
  EXPECT_THAT(
      [&] {
        functional_call(shared, TensorDict({{"0.weight", leaf}, {"1.weight", leaf + 1}}), kConcurrent, x);
      },
      ThrowsWith<c10::ValueError>("functional_call", "\"0.weight\" and \"1.weight\"", "two different tensors"));
}

TEST(ConcurrentCallTest, DoesNotExchangeLeavesAndArgumentsThatAreParameters) {
  torch::nn::Sequential net(Linear(2, 2), Linear(2, 2));
  const TensorDict own = from_module(*net);
  const TensorDict crossed({{"0.weight", own["1.weight"]},
                            {"1.weight", own["0.weight"]},
                            {"0.bias", own["1.bias"]},
                            {"1.bias", own["0.bias"]}});
  const Tensor x = own["0.bias"];
  const Tensor expected = torch::linear(torch::linear(x, own["1.weight"], own["1.bias"]), own["0.weight"], x);
  EXPECT_TRUE(functional_call(net, crossed, kConcurrent, x).equal(expected));
}

TEST(ConcurrentCallTest, SeesWhatASwapAroundItHasInstalled) {
  Linear layer(2, 2);
  const Tensor x = torch::ones({2}), weight = torch::randn({2, 2}), bias = torch::randn({2});
  const ToModuleGuard guard(TensorDict({{"weight", torch::zeros({2, 2})}, {"bias", bias}}), *layer);
  const Tensor result = functional_call(layer, TensorDict({{"weight", weight}}), kConcurrent, x);
  EXPECT_TRUE(result.equal(torch::linear(x, weight, bias)));
}

TEST(ConcurrentCallTest, GivesWayToASwapInsideIt) {
  struct SwappingImpl : torch::nn::Module {
    SwappingImpl() { layer = register_module("layer", Linear(2, 2)); }
    Tensor forward(const Tensor& x, const TensorDict& inner) {
      const Tensor before = layer(x);
      const ToModuleGuard guard(inner, *layer);
      return torch::stack({before, layer(x)});
    }
    Linear layer = nullptr;
  } net;
  const Tensor x = torch::ones({2});
  const TensorDict outer({{"layer.weight", torch::randn({2, 2})}, {"layer.bias", torch::randn({2})}});
  const TensorDict inner({{"weight", torch::randn({2, 2})}});
  const Tensor result = functional_call(net, outer, kConcurrent, x, inner);
  EXPECT_TRUE(result[0].equal(torch::linear(x, outer["layer.weight"], outer["layer.bias"])));
  EXPECT_TRUE(result[1].equal(torch::linear(x, inner["weight"], outer["layer.bias"])));
}

TEST(ConcurrentCallTest, ChecksGradientsIfAsked) {
  struct Twice : torch::autograd::Function<Twice> {
    static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list& gradients) {
      return {gradients[0] * 2};
    }
  };
  struct TwiceImpl : Linear::Impl {
    TwiceImpl() : Linear::Impl(2, 2) {}
    Tensor forward(const Tensor& x) { return torch::linear(x, Twice::apply(weight), bias); }
  } net;
  const TensorDict leaves = leaves_for(net);
  EXPECT_NO_THROW(functional_call(net, leaves, {.checked = true}, torch::ones({2})));
  EXPECT_THAT([&] { functional_call(net, leaves, {.concurrent = true, .checked = true}, torch::ones({2})); },
              ThrowsWith<c10::Error>("functional_call", "\"weight\"", "Function"));
}

}  // namespace
}  // namespace graft
