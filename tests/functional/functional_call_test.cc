#include "functional/functional_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

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

TEST(FunctionalCallTest, FindsOldParametersInResultsOfManyTensors) {
  struct Bare : RawImpl {
    std::pair<std::vector<Tensor>, std::tuple<Tensor, int, TensorDict>> forward() {
      return {{shift, w * 2, w}, {w, 7, TensorDict({{"w", w}, {"shift", shift}})}};
    }
  } module;
  const TensorDict leaves = random_like(from_module(module));
  const auto [list, rest] = functional_call(module, leaves);
  EXPECT_TRUE(list[0].is_same(leaves["shift"]));
  EXPECT_TRUE(list[1].equal(leaves["w"] * 2));
  EXPECT_TRUE(list[2].is_same(leaves["w"]));
  EXPECT_TRUE(std::get<0>(rest).is_same(leaves["w"]));
  EXPECT_EQ(std::get<1>(rest), 7);
  EXPECT_TRUE(std::get<2>(rest)["w"].is_same(leaves["w"]));
  EXPECT_TRUE(std::get<2>(rest)["shift"].is_same(leaves["shift"]));
}

/// Two parameters in members that no table knows, and one that is known.
struct TwoImpl : torch::nn::Module {
  TwoImpl() {
    a = register_parameter("a", torch::tensor({1., 2.}));
    b = register_parameter("b", torch::tensor({3., 5.}));
    fc = register_module("fc", Linear(2, 1));
  }
  std::vector<Tensor> forward() { return {seen_twice(a), seen_twice(b), seen_twice(fc->weight)}; }
  /// Dropout returns the very tensor that it was given, so a leaf that is exchanged in its turn is noticed.
  static Tensor seen_twice(const Tensor& w) { return torch::dropout(w, 0.5, /*train=*/false) + 0; }
  Tensor a, b;
  Linear fc = nullptr;
};

TEST(FunctionalCallTest, TakesOtherParametersOfTheModuleAsLeaves) {
  TwoImpl module;
  const Tensor a = module.a, b = module.b;
  const auto exchanged = functional_call(module, TensorDict({{"a", b}, {"b", a}}));
  EXPECT_TRUE(exchanged[0].equal(b));
  EXPECT_TRUE(exchanged[1].equal(a));
  exchanged[0].sum().backward();
  EXPECT_TRUE(b.grad().equal(torch::ones({2})));
  EXPECT_FALSE(a.grad().defined());
  EXPECT_TRUE(functional_call(module, TensorDict({{"a", b}, {"b", b}}))[0].equal(b));
  EXPECT_TRUE(functional_call(module, TensorDict({{"a", a}, {"b", a}}))[1].equal(a));
}

TEST(FunctionalCallTest, TakesARedirectedParameterAsTheLeafOfAKnownMember) {
  struct RowImpl : TwoImpl {
    RowImpl() { row = register_parameter("row", torch::tensor({{7., 11.}})); }
    Tensor row;
  } module;
  const TensorDict leaves({{"row", torch::zeros({1, 2})}, {"fc.weight", module.row}});
  EXPECT_TRUE(functional_call(module, leaves)[2].equal(module.row));
}

TEST(FunctionalCallTest, TakesItsOwnParametersAsLeavesAsTheyAre) {
  RawImpl module;
  const Tensor x = torch::randn({4, 3}, torch::kDouble);
  const TensorDict own = from_module(module);
  EXPECT_TRUE(functional_call(module, own, x).equal(by_hand(own, x)));
}

TEST(FunctionalCallTest, DoesNotExchangeArguments) {
  struct Dot : RawImpl {
    Tensor forward(const Tensor& x, const std::pair<Tensor, int>& more, const TensorDict& tree) {
      return x * w + more.first * more.second + tree["w"];
    }
  } module;
  const Tensor own = module.w, leaf = torch::randn({3}, torch::kDouble);
  const TensorDict leaves({{"w", leaf}}), tree({{"w", own}});
  const Tensor result = functional_call(module, leaves, own, std::make_pair(own, 2), tree);
  EXPECT_TRUE(result.equal(own * leaf + own * 2 + own));
  EXPECT_TRUE(tree["w"].is_same(own));
  const Tensor gradient = torch::autograd::grad({result.sum()}, {own})[0];
  EXPECT_TRUE(gradient.equal(leaf + 3));
}

TEST(FunctionalCallTest, PassesArgumentsOnAsTheyAre) {
  struct Picky : RawImpl {
    Tensor forward(Tensor& out, std::unique_ptr<int> number, const char (&text)[3], std::vector<Tensor>&& list) {
      out = list.at(0) * w;
      return torch::full({}, *number + text[0]);
    }
  } module;
  const Tensor leaf = torch::ones({3}, torch::kDouble), x = torch::randn({3}, torch::kDouble);
  Tensor out;
  const Tensor result =
      functional_call(module, TensorDict({{"w", leaf}}), out, std::make_unique<int>(2), "ab", std::vector<Tensor>{x});
  EXPECT_TRUE(out.equal(x));
  EXPECT_EQ(result.item<int>(), 2 + 'a');
}

/// Multiplies, and keeps from autograd what it does inside.
struct Product : torch::autograd::Function<Product> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& w) {
    context->save_for_backward({x, w});
    return x * w;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    return {gradients[0] * saved[1], gradients[0] * saved[0]};
  }
};

struct FunctionImpl : RawImpl {
  std::pair<Tensor, int> forward(const Tensor& x) { return {Product::apply(x + shift, w).sum(), 1}; }
};

TEST(FunctionalCallTest, FindsGradientsThatAFunctionKeepsFromTheLeafIfAsked) {
  FunctionImpl module;
  const Tensor x = torch::randn({3}, torch::kDouble);
  const TensorDict leaves({{"w", torch::randn({3}, torch::kDouble).set_requires_grad(true)}});
  // The value is right, the gradient is lost: that is what the check is for.
  const Tensor result = functional_call(module, leaves, x).first;
  EXPECT_TRUE(result.allclose(((x + module.shift) * leaves["w"]).sum()));
  EXPECT_FALSE(torch::autograd::grad({result}, {leaves["w"]}, {}, {}, false, /*allow_unused=*/true)[0].defined());
  EXPECT_THAT([&] { functional_call(module, leaves, {.checked = true}, x); },
              ThrowsMessage<c10::Error>(AllOf(HasSubstr("functional_call"), HasSubstr("\"w\""), HasSubstr("Function"),
                                              Not(HasSubstr("\"shift\"")))));
  EXPECT_TRUE(module.w.requires_grad());
}

TEST(FunctionalCallTest, SaysWhereItCannotTellOfGradients) {
  FunctionImpl module;
  module.w.set_requires_grad(false);
  const TensorDict leaves({{"w", torch::randn({3}, torch::kDouble).set_requires_grad(true)}});
  const CallOptions checked{.checked = true};
  EXPECT_THAT([&] { functional_call(module, leaves, checked, torch::ones({3}, torch::kDouble)); },
              ThrowsMessage<c10::Error>(AllOf(HasSubstr("\"w\""), HasSubstr("does not require grad"))));
}

TEST(FunctionalCallTest, FindsNothingWrongWhereOperatorsGetTheLeaves) {
  RawImpl module;
  CallOptions checked{.checked = true};
  const Tensor x = torch::randn({4, 3}, torch::kDouble);
  module.shift.set_requires_grad(true);
  TensorDict leaves = random_like(from_module(module));
  for (const Tensor& leaf : leaves.values()) leaf.set_requires_grad(true);
  EXPECT_TRUE(functional_call(module, leaves, checked, x).allclose(by_hand(leaves, x), 0, 1e-12));

  // Leaves and arguments that were computed from the module's own parameters, or are these.
  const TensorDict own = from_module(module);
  const TensorDict computed = own.map([](const Tensor& value) { return value * 2; });
  const Tensor y = x * module.w;
  EXPECT_TRUE(functional_call(module, computed, checked, y).allclose(by_hand(computed, y), 0, 1e-12));
  EXPECT_TRUE(functional_call(module, own, checked, y).allclose(by_hand(own, y), 0, 1e-12));
  const Tensor row = module.w.view({1, 3});
  EXPECT_TRUE(functional_call(module, leaves, checked, row).allclose(by_hand(leaves, row), 0, 1e-12));
  struct Scaled : RawImpl {
    Tensor forward(const Tensor& scale) { return w * scale; }
  } scaled;
  const TensorDict leaf({{"w", torch::ones({3}, torch::kDouble).set_requires_grad(true)}});
  EXPECT_TRUE(functional_call(scaled, leaf, checked, scaled.w).equal(scaled.w));
}

TEST(FunctionalCallTest, DifferentiatesInsideForward) {
  struct Slope : RawImpl {
    Tensor forward(const Tensor& x) {
      const Tensor value = (x * w).pow(3).sum();
      return torch::autograd::grad({value}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0] * w;
    }
  } module;
  const Tensor x = torch::randn({3}, torch::kDouble).set_requires_grad(true);
  const Tensor leaf = torch::randn({3}, torch::kDouble).set_requires_grad(true);
  const Tensor result = functional_call(module, TensorDict({{"w", leaf}}), x);
  EXPECT_TRUE(result.allclose(3 * x.pow(2) * leaf.pow(4), 0, 1e-12));
  const Tensor gradient = torch::autograd::grad({result.sum()}, {leaf})[0];
  EXPECT_TRUE(gradient.allclose(12 * x.pow(2) * leaf.pow(3), 0, 1e-12));
}

TEST(FunctionalCallTest, CallsAModuleInsideACallOfAnother) {
  struct Outer : torch::nn::Module {
    Outer() { inner = register_module("inner", std::make_shared<RawImpl>()); }
    Tensor forward(const Tensor& x, const TensorDict& leaves) {
      return inner->forward(x) + functional_call(inner, leaves, x) + inner->forward(x);
    }
    std::shared_ptr<RawImpl> inner;
  } module;
  const Tensor x = torch::randn({4, 3}, torch::kDouble);
  const TensorDict outer = random_like(from_module(module));
  TensorDict outer_part = outer.subtree("inner"), inner({{"w", torch::randn({3}, torch::kDouble)}}), both = outer_part;
  both.set("w", inner["w"]);
  const Tensor expected = 2 * by_hand(outer_part, x) + by_hand(both, x);
  EXPECT_TRUE(functional_call(module, outer, x, inner).allclose(expected, 0, 1e-12));
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
