// What functional_call does about handles that Graft does not know of parameters that it knows, and about members that
// forward assigns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <memory>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/script_module.h"
#include "functional/slots.h"
#include "functional/to_module.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {

/// Assigns to a buffer's member, as many keep a running mean.
struct RunningImpl : torch::nn::Module {
  RunningImpl() {
    weight = register_parameter("weight", torch::ones({3}));
    mean = register_buffer("mean", torch::zeros({3}));
  }
  Tensor forward(const Tensor& x) {
    mean = 0.9 * mean + 0.1 * x * weight;
    return mean.sum();
  }
  Tensor weight, mean;
};

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::RunningImpl, weight, mean)

namespace graft::testing {
namespace {

// --- Handles of what is known

/// A language model's head that holds its embedding.
struct HeadImpl : torch::nn::Module {
  HeadImpl() {
    embedding = register_module("embedding", torch::nn::Embedding(5, 3));
    out_ = embedding->weight;
    embedding->to(torch::kDouble);
  }
  Tensor forward(const Tensor& tokens) { return embedding(tokens).matmul(out_.t()); }
  torch::nn::Embedding embedding = nullptr;

 private:
  Tensor out_;
};

/// A subclass that holds its base's weight once more, and returns it.
struct TwiceImpl : torch::nn::LinearImpl {
  TwiceImpl() : LinearImpl(torch::nn::LinearOptions(2, 2).bias(false)), mine(weight) {}
  Tensor forward(const Tensor&) { return mine; }
  Tensor mine;
};

TEST(HiddenHandleTest, IsReachedInEachCall) {
  torch::manual_seed(0);
  const auto head = std::make_shared<HeadImpl>();
  const Tensor tokens = torch::tensor({1, 4, 1});
  for (int i = 0; i < 3; ++i) {
    const Tensor leaf = torch::randn({5, 3}, torch::kDouble);
    const auto by_hand = [&](const Tensor& weight) { return weight.index({tokens}).matmul(weight.t()); };
    const TensorDict params({{"embedding.weight", leaf}});
    EXPECT_TRUE(functional_call(head, params, tokens).allclose(by_hand(leaf)));
    const auto loss = [&](const TensorDict& p) { return functional_call(head, p, tokens).square().sum(); };
    const Tensor copy = leaf.clone().requires_grad_();
    by_hand(copy).square().sum().backward();
    EXPECT_TRUE(grad(loss)(params)["embedding.weight"].allclose(copy.grad()));
  }
  EXPECT_TRUE(head->forward(tokens).allclose(head->embedding(tokens).matmul(head->embedding->weight.t())));
}

TEST(HiddenHandleTest, IsReachedInResults) {
  TwiceImpl twice;
  for (int i = 0; i < 2; ++i) {
    const Tensor leaf = torch::randn({2, 2});
    EXPECT_TRUE(functional_call(twice, TensorDict({{"weight", leaf}}), leaf).is_same(leaf));
  }
}

TEST(HiddenHandleTest, IsRefusedByAGuardOnceItIsFound) {
  const auto head = std::make_shared<HeadImpl>();
  const TensorDict params({{"embedding.weight", torch::zeros({5, 3}, torch::kDouble)}});
  functional_call(head, params, torch::tensor({1}));
  EXPECT_THAT([&] { const ToModuleGuard guard(params, head); },
              ThrowsWith<c10::ValueError>("\"embedding.weight\"", "by a handle that is not known"));
}

// --- Members that forward assigns

TEST(AssignedMemberTest, IsAsItWasAfterACall) {
  RunningImpl module;
  const Tensor held = module.mean;
  const TensorDict params = from_module(module, State::kParameters);
  const auto call = [&](const TensorDict& p, const Tensor& x) { return functional_call(module, p, x); };
  const Tensor x = torch::rand({4, 3});
  const Tensor expected = 0.1 * x.sum(1);
  EXPECT_TRUE(call(params, x[0]).allclose(expected[0]));
  EXPECT_TRUE(module.mean.is_same(held));
  EXPECT_TRUE(vmap(call, {.in_dims = {std::nullopt, 0}})(params, x).allclose(expected));
  EXPECT_TRUE(module.mean.is_same(held));
  grad(call)(params, x[0]);
  EXPECT_TRUE(module.mean.is_same(held));
  EXPECT_TRUE(module.forward(x[0]).allclose(expected[0]));
}

TEST(AssignedMemberTest, IsAsItWasAfterACallOfTorchScript) {
  torch::jit::Module module("Running");
  module.register_parameter("weight", torch::ones({3}), /*is_buffer=*/false);
  module.register_buffer("mean", torch::zeros({3}));
  module.define(R"(
    def forward(self, x):
      self.mean = 0.9 * self.mean + 0.1 * x * self.weight
      return self.mean.sum()
  )");
  const Tensor held = module.attr("mean").toTensor();
  const TensorDict params = from_module(module, State::kParameters);
  const auto call = [&](const TensorDict& p, const Tensor& x) { return functional_call(module, p, x); };
  const Tensor x = torch::rand({4, 3});
  EXPECT_TRUE(vmap(call, {.in_dims = {std::nullopt, 0}})(params, x).allclose(0.1 * x.sum(1)));
  EXPECT_TRUE(module.attr("mean").toTensor().is_same(held));
}

}  // namespace
}  // namespace graft::testing
