// Swaps in modules of kinds that are easy to get wrong, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "functional/to_module.h"
#include "tensordict/autograd.h"
#include "tensordict/copy.h"
#include "tensordict/like.h"
#include "tests/semantics/small_modules.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/numbers.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/ensemble.h"

namespace graft::testing {

using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNormOptions;
using torch::nn::Linear;
using torch::nn::Sequential;

TEST(NestedGuardsTest, UnwindWhateverIsThrown) {
  Linear net = linear(1, 1, false);
  fill(*net, {1});
  torch::optim::SGD optimizer(net->parameters(), /*lr=*/1);
  const TensorDict two({{"weight", trained(numbers({2}, {1, 1}))}}), three({{"weight", trained(numbers({3}, {1, 1}))}});
  const Snapshot before(*net);
  const Tensor x = torch::ones({1, 1}, torch::kDouble);
  std::vector<double> seen;
  const auto look = [&] { seen.push_back(net->forward(x).item<double>()); };
  look();
  {
    const ToModuleGuard outer(two, *net);
    look();
    try {
      const ToModuleGuard inner(three, *net);
      look();
      throw std::runtime_error("body");
    } catch (const std::runtime_error&) {
    }
    look();
    {
      const ToModuleGuard again(two, *net);
      look();
    }
    look();
  }
  look();
  EXPECT_EQ(seen, (std::vector<double>{1, 2, 3, 2, 2, 2, 1}));
  try {
    const ToModuleGuard guard(two, *net);
    net->forward(torch::ones({1, 5}, torch::kDouble));
    FAIL() << "the shapes do not fit";
  } catch (const c10::Error&) {
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
  net->forward(x).sum().backward();
  optimizer.step();
  EXPECT_EQ(net->forward(x).item<double>(), 0);
  EXPECT_EQ(two["weight"].item<double>(), 2);
  EXPECT_EQ(three["weight"].item<double>(), 3);
}

TEST(PlainLeavesTest, LeaveTheModuleItsParameters) {
  Sequential net(Linear(2, 2), BatchNorm1d(2));
  const auto names = net->named_parameters().keys();
  const TensorDict zeros = zeros_like(from_module(*net));
  const Tensor x = torch::tensor({{1.f, 2.f}, {3.f, 5.f}});
  const Snapshot before(*net);
  {
    const ToModuleGuard guard(zeros, *net);
    EXPECT_EQ(net->named_parameters().keys(), names);
    const Tensor y = net->forward(x);
    EXPECT_TRUE(y.equal(torch::zeros({2, 2})));
    y.sum().backward();
  }
  EXPECT_FALSE(functional_call(net, zeros, x).requires_grad());
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");  // no gradients either
}

TEST(ComputedLeavesTest, AreUsedAsTheyAre) {
  Linear net = linear(2, 2, true);
  const Tensor w = trained(torch::ones({2, 2}, torch::kDouble));
  const ToModuleGuard guard(TensorDict({{"weight", 2 * w}, {"bias", torch::zeros({2}, torch::kDouble)}}), *net);
  const Tensor y = net->forward(torch::ones({1, 2}, torch::kDouble)).sum();
  EXPECT_EQ(y.item<double>(), 8);
  EXPECT_THAT(list_of(torch::autograd::grad({y}, {w})[0]), Near({2, 2, 2, 2}));
}

/// x w, and a penalty that it finds by walking its own registry.
struct PenalisedImpl : torch::nn::Module {
  PenalisedImpl() {
    w = register_parameter("w", torch::tensor(1., torch::kDouble));
    c = register_buffer("c", torch::tensor(2., torch::kDouble));
  }
  Tensor forward(const Tensor& x) {
    Tensor y = x * w;
    for (const Tensor& parameter : parameters()) y = y + parameter.square();
    for (const Tensor& buffer : buffers()) y = y + buffer;
    return y;
  }
  Tensor w, c;
};
TORCH_MODULE(Penalised);

/// The same, known to Graft by its members.
struct KnownPenalisedImpl : PenalisedImpl {};
TORCH_MODULE(KnownPenalised);

template <typename Module>
void expect_that_forward_finds_the_leaves_in_its_registry() {
  Module module;
  const Tensor w = trained(numbers({3}, {})), x = numbers({10}, {});
  const Tensor y = functional_call(module, TensorDict({{"w", w}, {"c", numbers({5}, {})}}), x);
  EXPECT_EQ(y.template item<double>(), 10 * 3 + 3 * 3 + 5);
  y.backward();
  EXPECT_EQ(w.grad().item<double>(), 10 + 2 * 3);
  EXPECT_FALSE(module->w.grad().defined());
  EXPECT_EQ(module->forward(x).template item<double>(), 10 + 1 + 2);
}

TEST(RegistryTest, ShowsTheLeavesInsideForward) {
  expect_that_forward_finds_the_leaves_in_its_registry<Penalised>();
  expect_that_forward_finds_the_leaves_in_its_registry<KnownPenalised>();
}

TEST(LstmTest, RunsOnTheGivenWeights) {
  torch::nn::LSTM lstm(1, 1);
  fill(*lstm, {0, 0, 0, 0});
  const TensorDict params({{"weight_ih_l0", trained(numbers({0.5, -0.5, 1, 0.25}, {4, 1}))},
                           {"weight_hh_l0", trained(numbers({0.1, 0.2, 0.3, 0.4}, {4, 1}))},
                           {"bias_ih_l0", trained(numbers({0.1, 0.2, 0.3, 0.4}, {4}))},
                           {"bias_hh_l0", trained(numbers({0, 0, 0, 0}, {4}))}});
  const Tensor x = numbers({1, -2, 0.5}, {3});
  Tensor h = torch::zeros({}, torch::kDouble), c = h;
  for (int step = 0; step < 3; ++step) {
    const Tensor z = params["weight_ih_l0"].squeeze(1) * x[step] + params["bias_ih_l0"] +
                     params["weight_hh_l0"].squeeze(1) * h + params["bias_hh_l0"];
    c = torch::sigmoid(z[1]) * c + torch::sigmoid(z[0]) * torch::tanh(z[2]);
    h = torch::sigmoid(z[3]) * torch::tanh(c);
  }
  EXPECT_NEAR(h.item<double>(), 0.282744742166576, 1e-14);
  const Tensor batch = x.view({3, 1, 1});
  const Tensor last = std::get<0>(functional_call(lstm, params, batch))[-1][0][0];
  EXPECT_NEAR(last.item<double>(), h.item<double>(), 1e-14);
  EXPECT_THAT(gradients(last, params), TensorDictNear(gradients(h, params), 1e-14));
  EXPECT_EQ(std::get<0>(lstm->forward(batch)).abs().max().item<double>(), 0);
}

TEST(NoBiasTest, IsNoLeafAndIsNotInvented) {
  std::vector<Linear> nets{linear(2, 1, false), linear(2, 1, false)};
  to_module(TensorDict({{"weight", numbers({1, 2}, {1, 2})}}), *nets[0], {.inplace = true});
  to_module(TensorDict({{"weight", numbers({3, -1}, {1, 2})}}), *nets[1], {.inplace = true});
  const TensorDict own = from_module(*nets[0]);
  ASSERT_EQ(own.size(), 1);
  const Tensor x = torch::ones({1, 2}, torch::kDouble);
  TensorDict with_bias = own;
  with_bias.set("bias", numbers({5}, {1}));
  EXPECT_THAT([&] { ToModuleGuard guard(with_bias, *nets[0], {.strict = true}); },
              ThrowsWith<c10::ValueError>("\"bias\""));
  EXPECT_EQ(functional_call(nets[0], with_bias, x).item<double>(), 8);
  EXPECT_FALSE(nets[0]->bias.defined());
  EXPECT_EQ(nets[0]->forward(x).item<double>(), 3);
  const Ensemble ensemble(nets);
  EXPECT_THAT(list_of(ensemble.forward(x)), Near({3, 2}));
  EXPECT_EQ(ensemble.state().params.size(), 1);
  EXPECT_TRUE(ensemble.state().buffers.empty());
  BatchNorm1d bare(BatchNormOptions(2).affine(false).track_running_stats(false));
  EXPECT_TRUE(from_module(*bare).empty());
}

TEST(OtherDtypeTest, ComputesInThatOfTheLeaves) {
  Sequential net(Linear(1, 1), BatchNorm1d(1));
  net->eval();
  TensorDict leaves = to(detach(from_module(*net)), torch::kDouble);
  leaves.set("1.num_batches_tracked", torch::tensor(0));
  leaves.set("0.bias", numbers({0}, {1}));
  const double value = 1 + std::pow(2., -40), scale = std::sqrt(1 + kEps);  // no such value in float
  const Tensor w = trained(numbers({value}, {1, 1}));
  leaves.set("0.weight", w * w);
  const Snapshot before(*net);
  const Tensor y = functional_call(net, leaves, numbers({3}, {1, 1}));
  ASSERT_EQ(y.scalar_type(), torch::kDouble);
  EXPECT_NEAR(y.item<double>(), 3 * value * value / scale, 1e-15);
  y.sum().backward();
  EXPECT_NEAR(w.grad().item<double>(), 6 * value / scale, 1e-14);
  EXPECT_THROW(functional_call(net, TensorDict({{"0.weight", w.detach()}}), torch::ones({1, 1})), c10::Error);
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::KnownPenalisedImpl, w, c)
