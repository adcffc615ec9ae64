// Swaps worked out by hand: small modules with small numbers, of kinds that are easy to get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tensordict/autograd.h"
#include "tensordict/join.h"
#include "tensordict/leafwise.h"
#include "tensordict/map.h"
#include "tensordict/pointwise.h"
#include "tensordict/ties.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/numbers.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/ensemble.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNormOptions;
using torch::nn::Embedding;
using torch::nn::EmbeddingOptions;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;

constexpr double kEps = 1e-5;  // of BatchNorm

Tensor trained(const Tensor& values) { return values.clone().requires_grad_(); }

void fill(torch::nn::Module& module, const std::vector<double>& values) {
  const torch::NoGradGuard no_grad;
  module.to(torch::kDouble);
  const auto parameters = distinct(module.parameters());
  for (std::size_t i = 0; i < values.size(); ++i) parameters[i].fill_(values[i]);
}

Linear linear(int64_t in, int64_t out, bool bias) {
  Linear module(LinearOptions(in, out).bias(bias));
  module->to(torch::kDouble);
  return module;
}

/// Returns p - rate * gradient for each leaf.
TensorDict stepped(const TensorDict& params, const Tensor& loss, double rate, bool second_order = true) {
  return params - rate * gradients(loss, params, {.retain_graph = true, .create_graph = second_order});
}

// --- Tied weights

/// Scores of words by a table that embeds them too.
struct WordsImpl : torch::nn::Module {
  WordsImpl() {
    table = register_module("table", Embedding(3, 2));
    scores = register_module("scores", Linear(LinearOptions(2, 3).bias(false)));
    to(torch::kDouble);
    to_module(TensorDict({{"scores.weight", table->weight}}), *this);
  }
  Tensor forward(const Tensor& words) { return scores(table(words)); }
  Embedding table = nullptr;
  Linear scores = nullptr;
};
TORCH_MODULE(Words);

TEST(TiedWeightTest, IsReachedInBothUsesThroughEitherName) {
  Words words;
  fill(*words, {0});
  for (const std::string name : {"table.weight", "scores.weight"}) {
    const Tensor w = trained(numbers({1, 2, 3, 4, 5, 6}, {3, 2}));
    const Tensor y = functional_call(words, TensorDict({{name, w}}), torch::tensor({1}));
    EXPECT_THAT(list_of(y), Near({11, 25, 39})) << name;  // w [3, 4]
    y.sum().backward();
    // [3, 4] to each row as a score, the sums of the columns [9, 12] to row 1 as an embedding.
    EXPECT_THAT(list_of(w.grad()), Near({3, 4, 12, 16, 3, 4})) << name;
  }
  EXPECT_THAT(list_of(words->forward(torch::tensor({1}))), Near({0, 0, 0}));
  EXPECT_TRUE(words->table->weight.is_same(words->scores->weight));
}

TEST(TiedWeightTest, HasTheSumOfBothUsesInTheGradientOfEachSample) {
  Words words;
  const Tensor w = numbers({1, 0, 2, -1, 0, 3}, {3, 2}), factors = numbers({1, 10, 100}, {3});
  const Tensor samples = torch::tensor({0, 1, 1, 2});
  const auto loss = [&](const TensorDict& params, const Tensor& word) {
    return (functional_call(words, params, word) * factors).sum();
  };
  const TensorDict params({{"table.weight", w}});
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, samples);
  Tensor expected = torch::zeros({4, 3, 2}, torch::kDouble);
  for (int sample = 0; sample < 4; ++sample) {
    const auto word = samples[sample].item<int64_t>();
    for (int row = 0; row < 3; ++row) {  // the loss is the sum of factor <row, word>
      expected[sample][row] += factors[row] * w[word];
      expected[sample][word] += factors[row] * w[row];
    }
  }
  EXPECT_THAT(gradients, TensorDictEq(TensorDict({{"table.weight", expected}}, {4})));
  EXPECT_THAT(list_of(expected.square().sum({1, 2})), Near({94684, 130086, 130086, 349450}));
}

/// w (w x), with one w.
struct SquareImpl : torch::nn::Module {
  SquareImpl() {
    first = register_module("first", linear(1, 1, false));
    second = register_module("second", linear(1, 1, false));
    to_module(TensorDict({{"second.weight", first->weight}}), *this);
  }
  Tensor forward(const Tensor& x) { return second(first(x)); }
  Linear first = nullptr, second = nullptr;
};
TORCH_MODULE(Square);

TEST(TiedWeightTest, IsLoadedThroughEitherNameAndSteppedOnce) {
  for (const std::string name : {"first.weight", "second.weight"}) {
    for (const double momentum : {0., 0.5}) {
      Square square;
      to_module(TensorDict({{name, numbers({3}, {1, 1})}}), *square, {.inplace = true});
      TensorDictParams params(from_module(*square));
      torch::optim::SGD optimizer(params->parameters(), torch::optim::SGDOptions(0.1).momentum(momentum));
      double w = 3, velocity = 0;
      for (int step = 0; step < 2; ++step) {
        optimizer.zero_grad();
        square->forward(numbers({2}, {1, 1})).sum().backward();  // 2 w^2
        EXPECT_NEAR(square->first->weight.grad().item<double>(), 4 * w, 1e-12);
        optimizer.step();
        velocity = momentum * velocity + 4 * w;
        w -= 0.1 * velocity;
        EXPECT_NEAR(square->first->weight.item<double>(), w, 1e-12);
      }
      EXPECT_TRUE(square->first->weight.is_same(square->second->weight));
    }
  }
}

/// head(body(x)) + body(x), with body and head under two names each.
struct TwoNamesImpl : torch::nn::Module {
  TwoNamesImpl() {
    body = register_module("body", linear(1, 1, false));
    head = register_module("head", linear(1, 1, false));
    all = register_module("all", Sequential(body, head));
  }
  Tensor forward(const Tensor& x) { return all->forward(x) + body(x); }
  Linear body = nullptr, head = nullptr;
  Sequential all = nullptr;
};
TORCH_MODULE(TwoNames);

TEST(SharedModuleTest, IsAdaptedOnceWithTheGradientOfAllItsUses) {
  TwoNames net;
  fill(*net, {2, 3});
  EXPECT_EQ(from_module(*net).size(), 4);
  EXPECT_EQ(distinct(net->parameters()).size(), 2);
  const Tensor x = torch::ones({1, 1}, torch::kDouble);
  const TensorDict params({{"body.weight", net->body->weight}, {"head.weight", net->head->weight}});
  const TensorDict adapted = stepped(params, functional_call(net, params, x).square().sum(), 0.1);
  EXPECT_NEAR(adapted["body.weight"].item<double>(), 2 - 0.1 * 64, 1e-12);  // 2 f (h + 1), f = 8
  EXPECT_NEAR(adapted["head.weight"].item<double>(), 3 - 0.1 * 32, 1e-12);  // 2 f b
  const Tensor y = functional_call(net, adapted, x).sum();
  EXPECT_NEAR(y.item<double>(), -3.52, 1e-12);
  EXPECT_EQ(net->forward(x).item<double>(), 8);
  y.backward();
  EXPECT_NEAR(net->body->weight.grad().item<double>(), 12.32, 1e-10);
  EXPECT_NEAR(net->head->weight.grad().item<double>(), -3.44, 1e-10);
}

// --- Guards

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

// --- Modules with something special

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

// --- Statistics of BatchNorm

/// Mean, variance and count.
std::vector<double> statistics(const TensorDict& tree, const std::string& prefix = "") {
  std::vector<double> all;
  for (const char* name : {"running_mean", "running_var", "num_batches_tracked"}) {
    for (const double value : list_of(tree.at(prefix + name))) all.push_back(value);
  }
  return all;
}

/// BatchNorm in double; its counter stays an integer.
BatchNorm1d make_norm(double momentum = 0.1) {
  BatchNorm1d norm(BatchNormOptions(1).momentum(momentum));
  norm->to(torch::kDouble);
  to_module(TensorDict({{"num_batches_tracked", torch::tensor(0)}}), *norm);
  return norm;
}

TEST(StatisticsTest, MoveWhereTheyAreGivenAndElseInTheModule) {
  BatchNorm1d norm = make_norm();
  const Tensor x = numbers({1, 3}, {2, 1});
  const double out = 1 / std::sqrt(1 + kEps);  // mean 2, variance 1 (2 without bias)
  const TensorDict params = clone(detach(from_module(*norm, State::kParameters)));
  const TensorDict buffers = clone(from_module(*norm, State::kBuffers));
  EXPECT_THAT(list_of(functional_call(norm, {params, buffers}, x)), Near({-out, out}));
  EXPECT_THAT(statistics(buffers), Near({0.2, 1.1, 1}));
  EXPECT_THAT(statistics(from_module(*norm)), Near({0, 1, 0}));
  functional_call(norm, params, x);
  EXPECT_THAT(statistics(from_module(*norm)), Near({0.2, 1.1, 1}));
  norm->eval();
  functional_call(norm, {params, buffers}, x);
  EXPECT_THAT(statistics(buffers), Near({0.2, 1.1, 1}));
  EXPECT_THAT(statistics(from_module(*norm)), Near({0.2, 1.1, 1}));
}

TEST(StatisticsTest, OfEachTaskStartFromTheModuleAndACopyDoesNotFollow) {
  BatchNorm1d norm = make_norm(0.5);
  const TensorDict params = from_module(*norm, State::kParameters);
  const std::vector<Tensor> tasks{numbers({0, 2}, {2, 1}), numbers({10, 14}, {2, 1})};  // means 1, 12, variances 2, 8
  const std::vector<std::vector<double>> expected{{0.75, 1.75, 2}, {9, 6.25, 2}};
  for (int task = 0; task < 2; ++task) {
    const TensorDict buffers = clone(from_module(*norm, State::kBuffers));
    for (int step = 0; step < 2; ++step) functional_call(norm, {params, buffers}, tasks[task]);
    EXPECT_THAT(statistics(buffers), Near(expected[task]));
  }
  EXPECT_THAT(statistics(from_module(*norm)), Near({0, 1, 0}));
  const TensorDict copy = clone(from_module(*norm, State::kBuffers));
  norm->forward(tasks[0]);
  EXPECT_THAT(statistics(from_module(*norm)), Near({0.5, 1.5, 1}));
  EXPECT_THAT(statistics(copy), Near({0, 1, 0}));
  to_module(copy, *norm, {.inplace = true});
  EXPECT_THAT(statistics(from_module(*norm)), Near({0, 1, 0}));
  norm->eval();
  const TensorDict given({{"running_mean", numbers({1}, {1})}, {"running_var", numbers({4}, {1})}});
  EXPECT_NEAR(functional_call(norm, given, numbers({5}, {1, 1})).item<double>(), 4 / std::sqrt(4 + kEps), 1e-12);
}

TEST(StatisticsTest, OfEachMemberOfAnEnsembleCountForThemselves) {
  std::vector<Sequential> nets;
  for (const double weight : {1., 10.}) {
    nets.emplace_back(linear(1, 1, true), make_norm());
    const torch::NoGradGuard no_grad;
    nets.back()[0]->as<Linear>()->weight.fill_(weight);
    nets.back()[0]->as<Linear>()->bias.zero_();
  }
  nets[1][1]->as<BatchNorm1d>()->num_batches_tracked.fill_(5);
  const Ensemble ensemble(nets);
  ensemble.forward(numbers({0, 2}, {2, 1}));  // mean 1, variance 2
  ensemble.forward(numbers({4, 4}, {2, 1}));  // mean 4, variance 0
  const TensorDict& buffers = ensemble.state().buffers;
  const double mean = 0.9 * 0.1 * 1 + 0.1 * 4;
  EXPECT_THAT(statistics(buffers, "1."), Near({mean, 10 * mean, 0.9 * (0.9 + 0.1 * 2), 0.9 * (0.9 + 0.1 * 200), 2, 7}));
  EXPECT_EQ(buffers["1.num_batches_tracked"].scalar_type(), torch::kLong);
  nets[0]->eval();
  EXPECT_THAT(list_of(ensemble.forward(numbers({1}, {1, 1}))), Near({0.512566697, 1.175914276}, 1e-8));
  EXPECT_THAT(statistics(buffers, "1.").back(), 7);
  EXPECT_THAT(statistics(from_module(*nets[0]), "1."), Near({0, 1, 0}));
  EXPECT_THAT(statistics(from_module(*nets[1]), "1."), Near({0, 1, 5}));
}

TEST(StatisticsTest, AveragedByACounterAreRefusedUnderVmap) {
  // With no momentum forward reads the counter as a number, of which an ensemble has several.
  std::vector<BatchNorm1d> nets;
  for (int i = 0; i < 2; ++i) nets.emplace_back(BatchNormOptions(1).momentum(c10::nullopt));
  const Ensemble ensemble(nets);
  const Snapshot before(*nets[0]);
  EXPECT_THROW(ensemble.forward(torch::tensor({{0.f}, {2.f}})), c10::Error);
  EXPECT_EQ(before.changes_to(Snapshot(*nets[0])), "");
}

// --- Stacks

TEST(StackedParametersTest, AreLeavesThatStepAsTheirModulesWould) {
  const std::vector<std::vector<double>> weights{{1, 2}, {0, -1}, {3, 0.5}};
  const std::vector<double> biases{0, 1, -2};
  std::vector<Linear> nets;
  for (int i = 0; i < 3; ++i) {
    nets.push_back(linear(2, 1, true));
    const TensorDict values({{"weight", numbers(weights[i], {1, 2})}, {"bias", numbers({biases[i]}, {1})}});
    to_module(values, *nets[i], {.inplace = true});
  }
  const StackedState state = stack_module_state(nets);
  for (const auto& [path, leaf] : state.params.leaves()) EXPECT_TRUE(leaf.is_leaf() && leaf.requires_grad()) << path;
  const Tensor x = numbers({1, 1, 2, 0}, {2, 2}), y = numbers({0, 1}, {2, 1});
  const auto loss = [&](const TensorDict& p) { return (functional_call(nets[0], p, x) - y).square().mean(); };
  torch::optim::SGD optimizer(state.params.values(), /*lr=*/0.1);
  const Tensor losses = vmap(loss)(state.params);
  EXPECT_THAT(list_of(losses), Near({5, 0, 5.625}));
  losses.sum().backward();
  optimizer.step();
  EXPECT_THAT(list_of(state.params["weight"]), Near({0.5, 1.7, 0, -1, 2.25, 0.35}));
  EXPECT_THAT(list_of(nets[0]->weight), Near({1, 2}));
  EXPECT_FALSE(nets[0]->weight.grad().defined());
}

TEST(StackedParametersTest, OfHeadsTrainASharedBackboneWithTheSumOfTheirGradients) {
  Sequential net(linear(2, 2, false), linear(2, 1, false));
  const Tensor backbone = trained(numbers({1, 2, 0, 1}, {2, 2}));
  const Tensor heads = trained(numbers({1, 0, 0, 1, 1, 1}, {3, 1, 2}));
  const Tensor x = numbers({1, -1}, {1, 2}), factors = numbers({1, 10, 100}, {3});
  const auto forward = [&](const Tensor& body, const Tensor& head) {
    return functional_call(net, TensorDict({{"0.weight", body}, {"1.weight", head}}), x).squeeze();
  };
  const Tensor unmapped = vmap(forward, {.in_dims = {std::nullopt, 0}})(backbone, heads);
  const Tensor expanded = vmap(forward)(backbone.expand({3, 2, 2}), heads);
  for (const Tensor& y : {unmapped, expanded}) {
    EXPECT_THAT(list_of(y), Near({-1, -1, -2}));  // head [-1, -1]
    const auto gradients = torch::autograd::grad({(y * factors).sum()}, {backbone, heads});
    EXPECT_THAT(list_of(gradients[0]), Near({101, -101, 110, -110}));
    EXPECT_THAT(list_of(gradients[1]), Near({-1, -1, -10, -10, -100, -100}));
  }
  const TensorDict stacked({{"0.weight", backbone.detach().expand({3, 2, 2})}, {"1.weight", heads.detach()}}, {3});
  EXPECT_THAT([&] { ToModuleGuard guard(stacked, *net); }, ThrowsWith<c10::ValueError>("\"0.weight\"", "\"1.weight\""));
  const ToModuleGuard guard(unbind(stacked)[1], *net);
  EXPECT_EQ(net->forward(x).item<double>(), -1);
}

TEST(StackedParametersTest, OfEmbeddingsAddUpRepeatedWordsAndLeaveThePadding) {
  Embedding table(EmbeddingOptions(4, 2).padding_idx(0));
  const Tensor w = torch::arange(16, torch::kDouble).view({2, 4, 2});
  const Tensor words = torch::tensor({1, 1, 0, 2, 0, 3, 0, 0, 0}).view({3, 3});
  const auto sum = [&](const TensorDict& p) { return functional_call(table, p, words).sum(1); };
  const Tensor sums = vmap(sum)(TensorDict({{"weight", w}}, {2}));
  for (int member = 0; member < 2; ++member) {
    for (int sample = 0; sample < 3; ++sample) {
      EXPECT_TRUE(sums[member][sample].equal(w[member].index({words[sample]}).sum(0)));
    }
  }
  const Tensor factors = numbers({1, 10, 100}, {3, 1});
  const auto loss = [&](const TensorDict& p, const Tensor& sample) {
    return (functional_call(table, p, sample) * factors).sum();
  };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(TensorDict({{"weight", w[0]}}), words);
  for (int column = 0; column < 2; ++column) {
    EXPECT_THAT(list_of(gradients["weight"].select(2, column)), Near({0, 11, 0, 0, 0, 0, 1, 100, 0, 0, 0, 0}));
  }
}

/// Embeds words and their places, which are the same for every sample.
struct PlacesImpl : torch::nn::Module {
  PlacesImpl() {
    words = register_module("words", Embedding(3, 1));
    places = register_module("places", Embedding(4, 1));
  }
  Tensor forward(const Tensor& ids) { return words(ids) + places(torch::arange(ids.size(-1)).unsqueeze(0)); }
  Embedding words = nullptr, places = nullptr;
};
TORCH_MODULE(Places);

TEST(BroadcastEmbeddingTest, HasAGradientForEachSample) {
  Places net;
  const TensorDict params(
      {{"words.weight", numbers({1, 2, 3}, {3, 1})}, {"places.weight", numbers({0.1, 0.2, 0.3, 0.4}, {4, 1})}});
  const Tensor ids = torch::tensor({0, 1, 2, 2, 2, 2}).view({2, 3});
  const auto loss = [&](const TensorDict& p, const Tensor& sample) {
    return functional_call(net, p, sample.unsqueeze(0)).square().sum();
  };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, ids);
  EXPECT_EQ(gradients["places.weight"].sizes(), torch::IntArrayRef({2, 4, 1}));
  EXPECT_THAT(list_of(gradients["places.weight"]), Near({2.2, 4.4, 6.6, 0, 6.2, 6.4, 6.6, 0}));
  EXPECT_THAT(list_of(gradients["words.weight"]), Near({2.2, 4.4, 6.6, 0, 0, 19.2}));
}

// --- Inner loops

TEST(InnerLoopTest, OfFirstOrderReachesTheInitialParameters) {
  Linear net = linear(2, 1, true);
  to_module(TensorDict({{"weight", numbers({1, -1}, {1, 2})}, {"bias", numbers({0.5}, {1})}}), *net, {.inplace = true});
  const Tensor x = numbers({1, 2, 0, 1}, {2, 2}), y = numbers({1, 0}, {2, 1});
  const TensorDict params = from_module(*net);
  const Tensor inner = (functional_call(net, params, x) - y).square().mean();
  const TensorDict adapted = stepped(params, inner, 0.1, /*second_order=*/false);
  const Tensor outer = (functional_call(net, adapted, numbers({2, 0}, {1, 2})) - 1).square().mean();
  outer.backward();
  // The residuals are -1.5 and -0.5, the step 0.1 [-1.5, -3.5] and 0.1 (-2), so the outer residual is 2.
  EXPECT_THAT(list_of(net->weight.grad()), Near({8, 0}));
  EXPECT_THAT(list_of(net->bias.grad()), Near({4}));
}

TEST(InnerLoopTest, OfSecondOrderSeesThatTheStepDependsOnTheParameters) {
  Linear net = linear(2, 1, true);
  to_module(TensorDict({{"weight", numbers({1, -1}, {1, 2})}, {"bias", numbers({0.5}, {1})}}), *net, {.inplace = true});
  const Tensor x = numbers({1, 2, 0, 1}, {2, 2}), y = numbers({1, 0}, {2, 1});
  const TensorDict params = from_module(*net);
  const TensorDict adapted = stepped(params, (functional_call(net, params, x) - y).square().mean(), 0.1);
  (functional_call(net, adapted, numbers({2, 0}, {1, 2})) - 1).square().mean().backward();
  // (1 - 0.1 H) [8, 0, 4], with H the mean of 2 x x^T.
  EXPECT_THAT(list_of(net->weight.grad()), Near({6.8, -2.8}));
  EXPECT_THAT(list_of(net->bias.grad()), Near({2.4}));
}

TEST(InnerLoopTest, LeavesFrozenParametersAsTheyAre) {
  Sequential net(linear(1, 1, true), linear(1, 1, true));
  fill(*net, {2, 1, 0.5, -1});
  requires_grad_(from_module(*net[0]->as<torch::nn::Module>()), false);
  TensorDict trained_part = from_module(*net).subtree("1");
  const auto all = [&] {
    TensorDict tree = from_module(*net);
    tree.set("1", trained_part);
    return tree;
  };
  const Tensor start = trained_part["weight"];
  Tensor jacobian = torch::eye(2, torch::kDouble);
  double weight = 0.5, bias = -1;
  const double hidden = 2 * 3 + 1, rate = 0.01;
  for (int step = 0; step < 2; ++step) {
    const Tensor loss = functional_call(net, all(), numbers({3}, {1, 1})).square().sum();
    trained_part = stepped(trained_part, loss, rate);
    const double residual = hidden * weight + bias;
    weight -= rate * 2 * residual * hidden;
    bias -= rate * 2 * residual;
    const Tensor hessian = 2 * numbers({hidden * hidden, hidden, hidden, 1}, {2, 2});
    jacobian = (torch::eye(2, torch::kDouble) - rate * hessian).matmul(jacobian);
  }
  EXPECT_THAT(list_of(trained_part["weight"]), Near({weight}));
  EXPECT_THAT(list_of(trained_part["bias"]), Near({bias}));
  functional_call(net, all(), numbers({1}, {1, 1})).sum().backward();
  const auto expected = list_of(jacobian.t().matmul(numbers({2 * 1 + 1, 1}, {2})));
  EXPECT_NEAR(start.grad().item<double>(), expected[0], 1e-12);
  EXPECT_NEAR(from_module(*net)["1.bias"].grad().item<double>(), expected[1], 1e-12);
  EXPECT_FALSE(from_module(*net)["0.weight"].grad().defined());
  EXPECT_THAT(list_of(from_module(*net)["0.weight"]), Near({2}));
}

TEST(CopiesTest, WithHistoryPassGradientsToTheModuleAndDetachedOnesKeepThem) {
  const Tensor x = torch::ones({1, 1}, torch::kDouble);
  const auto loss = [&](Linear& net, const TensorDict& p) { return (functional_call(net, p, x) - 1).square().mean(); };
  Linear net = linear(1, 1, false);
  fill(*net, {0.5});
  const TensorDict attached = clone(from_module(*net));
  const TensorDict adapted = stepped(attached, loss(net, attached), 0.1);
  EXPECT_NEAR(adapted["weight"].item<double>(), 0.6, 1e-12);
  loss(net, adapted).backward();
  EXPECT_NEAR(net->weight.grad().item<double>(), 2 * (0.6 - 1) * (1 - 0.2), 1e-12);
  EXPECT_EQ(net->weight.item<double>(), 0.5);
  net->zero_grad();
  const TensorDict detached = requires_grad_(clone(detach(from_module(*net))));
  loss(net, stepped(detached, loss(net, detached), 0.1)).backward();
  EXPECT_NEAR(detached["weight"].grad().item<double>(), -0.64, 1e-12);
  EXPECT_FALSE(net->weight.grad().defined());
}

TEST(InnerLoopTest, InsideVmapEqualsALoopOverTasks) {
  Sequential net(linear(1, 2, false), torch::nn::Tanh(), linear(2, 1, true));
  const TensorDict params({{"0.weight", trained(numbers({0.5, -0.3}, {2, 1}))},
                           {"2.weight", trained(numbers({1, -1}, {1, 2}))},
                           {"2.bias", trained(numbers({0.1}, {1}))}});
  const Tensor x = numbers({1, 2, 0, -1, 0.5, 0.5}, {3, 2, 1}), y = x.square() - 1;
  const Tensor query = numbers({0.3, 2, -1}, {3, 1, 1}), answer = query.square() - 1;
  const auto mse = [&](const TensorDict& p, const Tensor& input, const Tensor& target) {
    return (functional_call(net, p, input) - target).square().mean();
  };
  for (const auto& [steps, loss, first, bias, second] :
       std::vector<std::tuple<int, double, std::vector<double>, double, std::vector<double>>>{
           {0, 4.550421277849, {-0.929758794, 2.618852692}, -2.012286457, {-1.463436493, 1.115159897}},
           {1, 5.712906462090, {-2.149062172, 4.66323219}, -3.356324011, {-1.869952806, 0.934675859}},
           {3, 7.406472494994, {-2.76853008, 5.485671096}, -4.840454885, {-1.659685487, 0.265759727}}}) {
    const int count = steps;
    const auto task = [&](TensorDict p, const Tensor& x1, const Tensor& y1, const Tensor& x2, const Tensor& y2) {
      for (int step = 0; step < count; ++step) {
        p = zip_map(p, grad(mse)(p, x1, y1), [](const Tensor& leaf, const Tensor& g) { return leaf - g * 0.1; });
      }
      return mse(p, x2, y2);
    };
    const Tensor total = vmap(task, {.in_dims = {std::nullopt, 0, 0, 0, 0}})(params, x, y, query, answer).sum();
    EXPECT_NEAR(total.item<double>(), loss, 1e-11);
    const auto gradients = torch::autograd::grad({total}, params.values());
    EXPECT_THAT(list_of(gradients[0]), Near(first, 1e-8));
    EXPECT_THAT(list_of(gradients[1]), Near(second, 1e-8));
    EXPECT_NEAR(gradients[2].item<double>(), bias, 1e-8);
  }
}

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::KnownPenalisedImpl, w, c)
