// Weights and modules under several names, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tests/semantics/small_modules.h"
#include "tests/testing/numbers.h"
#include "tests/testing/tensordict_matchers.h"
#include "vmap/vmap.h"

namespace graft::testing {

using torch::Tensor;
using torch::nn::Embedding;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;

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

}  // namespace graft::testing
