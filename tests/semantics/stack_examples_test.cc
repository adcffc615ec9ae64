// Statistics of BatchNorm and stacked parameters, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tensordict/copy.h"
#include "tensordict/join.h"
#include "tests/semantics/small_modules.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/numbers.h"
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
using torch::nn::Sequential;

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

}  // namespace graft::testing
