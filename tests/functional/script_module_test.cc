// TorchScript modules that Python exported (script_models/make_models.py), against what Python computes with them.
#include "functional/script_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "functional/grad.h"
#include "tests/testing/counting_allocator.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using torch::jit::Module;

constexpr double kTolerance = 1e-10;

Module load(const std::string& name) { return torch::jit::load("tests/functional/script_models/" + name + ".pt"); }

/// Lets TorchScript specialise the module's code, for values that require grad.
void call_often(Module& module, const Tensor& x) {
  for (int i = 0; i < 5; ++i) module.forward({x}).toTensor().sum().backward();
  for (const Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
}

TensorDict random_like(const TensorDict& tree) {
  return tree.map([](const Tensor& leaf) { return torch::randn_like(leaf.detach()); });
}

double distance(const Tensor& left, const Tensor& right) { return (left - right).abs().max().item<double>(); }

/// Every slot that holds a tensor, with that tensor, by dotted name.
std::map<std::string, Tensor> handles(const Module& module) {
  std::map<std::string, Tensor> found;
  for (const auto& attribute : module.named_attributes()) {
    if (attribute.value.isTensor()) found.emplace(attribute.name, attribute.value.toTensor());
  }
  return found;
}

void expect_same_handles(const std::map<std::string, Tensor>& before, const Module& module) {
  const auto now = handles(module);
  EXPECT_EQ(before.size(), now.size());
  for (const auto& [name, tensor] : before) EXPECT_TRUE(now.contains(name) && now.at(name).is_same(tensor)) << name;
}

Tensor square_sum(const TensorDict& tree) {
  Tensor sum = torch::zeros({}, torch::kDouble);
  for (const Tensor& leaf : tree.values()) sum = sum + leaf.square().sum();
  return sum;
}

// --- Against Python

struct Exported {
  std::string name;
  std::string expected;
  Tensor (*loss)(const Tensor& output, const Tensor& target);
};

void PrintTo(const Exported& exported, std::ostream* out) { *out << exported.name; }

Tensor cross_entropy(const Tensor& output, const Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}
Tensor mean_square(const Tensor& output, const Tensor& target) { return (output - target).square().mean(); }

/// LibTorch warns that it runs the encoder's attention as a loop.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

class ExportedModuleTest : public ::testing::TestWithParam<Exported> {
 protected:
  static void SetUpTestSuite() { torch::set_num_threads(1); }

  Module module_ = load(GetParam().name);
  Module expected_ = load(GetParam().expected);
  Tensor inputs_ = expected_.attr("inputs").toTensor(), targets_ = expected_.attr("targets").toTensor();
  TensorDict params_ = from_module(module_, State::kParameters);

  Tensor sample_loss(const TensorDict& params, const Tensor& x, const Tensor& y) const {
    return GetParam().loss(functional_call(module_, params, x.unsqueeze(0)), y.unsqueeze(0));
  }

  std::pair<Tensor, TensorDict> losses_and_gradients() const {
    const auto loss = [this](const TensorDict& p, const Tensor& x, const Tensor& y) { return sample_loss(p, x, y); };
    return vmap(value_and_grad(loss), {.in_dims = {std::nullopt, 0, 0}})(params_, inputs_, targets_);
  }

  void expect_python_results(const std::pair<Tensor, TensorDict>& results) const {
    const auto& [losses, gradients] = results;
    EXPECT_LT(distance(losses, expected_.attr("losses").toTensor()), kTolerance);
    EXPECT_EQ(gradients.size(), params_.size());
    for (const auto& [path, gradient] : gradients.leaves()) {
      std::string name = "gradients__" + path;
      for (std::size_t dot; (dot = name.find('.')) != std::string::npos;) name.replace(dot, 1, "__");
      EXPECT_LT(distance(gradient, expected_.attr(name).toTensor()), kTolerance) << path;
    }
  }

 private:
  Silent silent_;
  c10::WarningUtils::WarningHandlerGuard handler_guard_{&silent_};
};

TEST_P(ExportedModuleTest, GivesPythonsOutputs) {
  const Tensor output = functional_call(module_, params_, inputs_);
  EXPECT_LT(distance(output, expected_.attr("outputs").toTensor()), kTolerance);
}

TEST_P(ExportedModuleTest, GivesPythonsPerSampleGradients) { expect_python_results(losses_and_gradients()); }

TEST_P(ExportedModuleTest, GivesThemAfterTorchScriptHasSpecialisedForward) {
  call_often(module_, inputs_);
  expect_python_results(losses_and_gradients());
}

TEST_P(ExportedModuleTest, GivesTheSameFiftyTimesAndLeavesNothing) {
  auto& allocator = testing::CountingAllocator::install();
  const auto before = handles(module_);
  const auto first = losses_and_gradients();
  const auto live = allocator.live();
  for (int i = 0; i < 50; ++i) {
    const auto again = losses_and_gradients();
    ASSERT_TRUE(again.first.equal(first.first));
    for (const auto& [path, gradient] : again.second.leaves()) ASSERT_TRUE(gradient.equal(first.second[path])) << path;
  }
  EXPECT_EQ(allocator.live(), live);
  expect_same_handles(before, module_);
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
  const Tensor output = module_.forward({inputs_}).toTensor();
  EXPECT_LT(distance(output, expected_.attr("outputs").toTensor()), kTolerance);
}

TEST_P(ExportedModuleTest, RunsWithOtherLeaves) {
  const TensorDict leaves = random_like(params_);
  Module other = module_.deepcopy();
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : other.named_parameters()) parameter.value.copy_(leaves[parameter.name]);
  const Tensor expected = other.forward({inputs_}).toTensor();
  EXPECT_GT(distance(expected, expected_.attr("outputs").toTensor()), 1e-3);
  EXPECT_LT(distance(functional_call(module_, leaves, inputs_), expected), kTolerance);
  const ToModuleGuard guard(leaves, module_);
  EXPECT_LT(distance(module_.forward({inputs_}).toTensor(), expected), kTolerance);
}

TEST_P(ExportedModuleTest, MapsOverStackedLeaves) {
  const std::vector<TensorDict> members = {params_, random_like(params_), random_like(params_)};
  TensorDict stack;
  for (const auto& [path, leaf] : params_.leaves()) {
    stack.set(path, torch::stack({members[0][path], members[1][path], members[2][path]}).detach());
  }
  const auto run = [this](const TensorDict& params, const Tensor& x) { return functional_call(module_, params, x); };
  const Tensor outputs = vmap(run, {.in_dims = {0, std::nullopt}})(stack, inputs_);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const Tensor expected = functional_call(module_, members[i], inputs_);
    EXPECT_LT(distance(outputs[static_cast<int64_t>(i)], expected), kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExportedModuleTest,
                         ::testing::Values(Exported{"cnn", "cnn_expected", cross_entropy},
                                           Exported{"cnn_traced", "cnn_expected", cross_entropy},
                                           Exported{"encoder", "encoder_expected", mean_square}),
                         [](const auto& exported) { return exported.param.name; });

// --- Derivatives beyond the first, where TorchScript's own code is wrong

class ScriptDerivativesTest : public ::testing::Test {
 protected:
  ScriptDerivativesTest() { call_often(module_, x_); }

  static Tensor by_hand(const TensorDict& p, const Tensor& x) {
    return torch::linear(torch::linear(x, p["0.weight"], p["0.bias"]).tanh().sigmoid(), p["3.weight"], p["3.bias"]);
  }

  Module module_ = load("mlp");
  Tensor x_ = torch::randn({4, 3}, torch::kDouble);
  TensorDict params_ = from_module(module_).map([](const Tensor& leaf) { return leaf.detach(); });
};

TEST_F(ScriptDerivativesTest, GradOfGradIsRight) {
  const auto second = [this](auto run) {
    return grad([this, run](const TensorDict& p) {
      return square_sum(grad([this, run](const TensorDict& q) { return run(q, x_).square().sum(); })(p));
    })(params_);
  };
  const TensorDict expected = second(by_hand);
  for (int i = 0; i < 5; ++i) {
    const TensorDict actual =
        second([this](const TensorDict& p, const Tensor& x) { return functional_call(module_, p, x); });
    for (const auto& [path, leaf] : actual.leaves()) EXPECT_LT(distance(leaf, expected[path]), kTolerance) << path;
  }
}

TEST_F(ScriptDerivativesTest, ForwardModeTangentsAreRight) {
  const auto level = torch::autograd::ForwardADLevel::get_next_idx();
  const TensorDict tangents = random_like(params_);
  TensorDict duals;
  for (const auto& [path, leaf] : params_.leaves()) {
    duals.set(path, at::_make_dual(leaf.clone().requires_grad_(), tangents[path], static_cast<int64_t>(level)));
  }
  const Tensor expected = by_hand(duals, x_)._fw_grad(level);
  for (int i = 0; i < 5; ++i) {
    EXPECT_LT(distance(functional_call(module_, duals, x_)._fw_grad(level), expected), kTolerance);
    const ToModuleGuard guard(duals, module_);
    EXPECT_LT(distance(functional_call(module_, TensorDict(), x_)._fw_grad(level), expected), kTolerance);
  }
  torch::autograd::ForwardADLevel::release_idx(level);
}

TEST_F(ScriptDerivativesTest, OrdinaryAutogradReachesTheLeaves) {
  TensorDict leaves = random_like(params_);
  for (const Tensor& leaf : leaves.values()) leaf.requires_grad_();
  const auto gradients = torch::autograd::grad({functional_call(module_, leaves, x_).square().sum()}, leaves.values());
  const auto expected = torch::autograd::grad({by_hand(leaves, x_).square().sum()}, leaves.values());
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_LT(distance(gradients[i], expected[i]), kTolerance);
}

TEST_F(ScriptDerivativesTest, WhatRunsOnAnotherThreadIsDifferentiatedToo) {
  Module module = load("forking");
  const TensorDict params = from_module(module).map([](const Tensor& leaf) { return leaf.detach(); });
  call_often(module, x_);
  const auto per_sample = [&](auto run) {
    const auto loss = [run](const TensorDict& p, const Tensor& x) { return run(p, x).square().sum(); };
    return vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, x_);
  };
  const TensorDict expected = per_sample([](const TensorDict& p, const Tensor& x) {
    const Tensor y = torch::linear(x, p["fc.weight"], p["fc.bias"]);
    return y * y.sigmoid();
  });
  for (int i = 0; i < 5; ++i) {
    const TensorDict actual =
        per_sample([&](const TensorDict& p, const Tensor& x) { return functional_call(module, p, x); });
    for (const auto& [path, leaf] : actual.leaves()) EXPECT_LT(distance(leaf, expected[path]), kTolerance) << path;
  }
}

// --- Installing and restoring

class ScriptModuleTest : public ::testing::Test {
 protected:
  Module module_ = load("cnn");
  TensorDict state_ = from_module(module_);
  std::map<std::string, Tensor> before_ = handles(module_);
};

TEST_F(ScriptModuleTest, ReadsTheRegisteredTensorsByDottedNames) {
  std::vector<std::string> params, buffers;
  for (const auto& [path, leaf] : from_module(module_, State::kParameters).leaves()) params.push_back(path);
  for (const auto& [path, leaf] : from_module(module_, State::kBuffers).leaves()) buffers.push_back(path);
  EXPECT_THAT(params, ::testing::UnorderedElementsAre("conv.weight", "conv.bias", "norm.weight", "norm.bias", "kernel",
                                                      "shift", "layers.0.weight", "layers.0.bias", "layers.1.1.weight",
                                                      "layers.1.1.bias"));
  EXPECT_THAT(buffers,
              ::testing::UnorderedElementsAre("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"));
  EXPECT_EQ(state_.size(), params.size() + buffers.size());
  for (const auto& [path, leaf] : state_.leaves()) EXPECT_TRUE(leaf.is_same(before_.at(path))) << path;
}

TEST_F(ScriptModuleTest, AGuardRestoresEveryHandleAfterAnException) {
  const TensorDict leaves = state_.map([](const Tensor& leaf) { return torch::zeros_like(leaf); });
  const auto run = [&] {
    const ToModuleGuard guard(leaves, module_);
    for (const auto& [path, leaf] : guard.swapped_out().leaves()) EXPECT_TRUE(leaf.is_same(state_[path])) << path;
    for (const auto& [path, leaf] : guard.current().leaves()) EXPECT_EQ(leaf.data_ptr(), leaves[path].data_ptr());
    EXPECT_EQ(guard.current().size(), leaves.size());
    module_.forward({torch::ones({7})});
  };
  EXPECT_ANY_THROW(run());
  expect_same_handles(before_, module_);
  EXPECT_ANY_THROW(functional_call(module_, leaves, torch::ones({7})));
  expect_same_handles(before_, module_);
  EXPECT_TRUE(torch::jit::getGraphExecutorOptimize());
}

TEST_F(ScriptModuleTest, GuardsRestoreWhateverTheBodyDid) {
  const TensorDict zeros = state_.map([](const Tensor& leaf) { return torch::zeros_like(leaf); });
  const TensorDict ones = zeros.map([](const Tensor& leaf) { return torch::ones_like(leaf); });
  {
    const ToModuleGuard outer(zeros, module_);
    {
      const ToModuleGuard inner(ones, module_);
      EXPECT_EQ(module_.attr("shift").toTensor().sum().item<double>(), 4);
      module_.setattr("shift", torch::full({4}, 5.0, torch::kDouble));
      EXPECT_EQ(inner.current()["shift"].sum().item<double>(), 20);
      module_.register_buffer("more", torch::ones({1}));
    }
    EXPECT_EQ(module_.attr("shift").toTensor().sum().item<double>(), 0);
  }
  before_.emplace("more", module_.attr("more").toTensor());
  expect_same_handles(before_, module_);
}

TEST_F(ScriptModuleTest, AGuardFindsItsSlotsAgainWhenAttributesAreRemoved) {
  Module module("Made");
  for (const char* name : {"a", "b", "c"}) module.register_parameter(name, torch::ones({2}), /*is_buffer=*/false);
  const Tensor c = module.attr("c").toTensor();
  {
    const ToModuleGuard guard(TensorDict({{"b", torch::zeros({2})}, {"c", torch::zeros({2})}}), module);
    for (const char* name : {"a", "b"}) {
      module._ivalue()->unsafeRemoveAttr(name);
      module.type()->unsafeRemoveAttribute(name);
    }
    EXPECT_EQ(guard.current().size(), 1u);
  }
  EXPECT_TRUE(module.attr("c").toTensor().is_same(c));
  EXPECT_FALSE(module.hasattr("b"));
}

TEST_F(ScriptModuleTest, ToModuleKeepsTheLeavesAndReturnsTheOldValues) {
  const TensorDict leaves = random_like(from_module(module_, State::kParameters));
  const auto old = to_module(leaves, module_);
  for (const auto& [path, leaf] : old->leaves()) EXPECT_TRUE(leaf.is_same(before_.at(path))) << path;
  for (const auto& [path, leaf] : from_module(module_, State::kParameters).leaves()) {
    EXPECT_EQ(leaf.data_ptr(), leaves[path].data_ptr()) << path;
  }
  EXPECT_FALSE(to_module(*old, module_, {.return_swap = false}));
  expect_same_handles(before_, module_);
}

TEST_F(ScriptModuleTest, AGuardCopiesInPlaceAndBack) {
  const TensorDict leaves = state_.map([](const Tensor& leaf) { return torch::full_like(leaf, 3); });
  const TensorDict values = state_.map([](const Tensor& leaf) { return leaf.detach().clone(); });
  {
    const ToModuleGuard guard(leaves, module_, {.inplace = true});
    for (const auto& [path, leaf] : from_module(module_).leaves()) {
      EXPECT_TRUE(leaf.is_same(before_.at(path))) << path;
      EXPECT_TRUE(leaf.equal(leaves[path])) << path;
    }
    EXPECT_TRUE(guard.swapped_out()["shift"].equal(values["shift"]));
  }
  for (const auto& [path, leaf] : state_.leaves()) EXPECT_TRUE(leaf.equal(values[path])) << path;
  expect_same_handles(before_, module_);
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"shift", torch::zeros({4})}}), module_, {.inplace = true});
      },
      ThrowsWith<c10::ValueError>("\"shift\": Float on cpu, expected Double on cpu"));
}

TEST_F(ScriptModuleTest, AStrictCallAsksForEveryName) {
  const TensorDict some({{"shift", torch::zeros({4}, torch::kDouble)}});
  EXPECT_THAT([&] { to_module(some, module_, {.strict = true}); },
              ThrowsWith<c10::ValueError>("strict", "\"conv.weight\": got no leaf", "\"kernel\": got no leaf"));
  expect_same_handles(before_, module_);
  EXPECT_TRUE(to_module(state_, module_, {.strict = true}).has_value());
}

TEST_F(ScriptModuleTest, HasNoStateDict) {
  EXPECT_THAT([&] { to_module(state_, module_, {.use_state_dict = true}); },
              ThrowsWith<c10::ValueError>("use_state_dict"));
}

TEST_F(ScriptModuleTest, APlainLeafEntersAsAnAliasThatRequiresGrad) {
  const Tensor plain = torch::zeros({4}, torch::kDouble), mean = torch::zeros({4}, torch::kDouble);
  const Tensor active = torch::zeros({4}, torch::kDouble).requires_grad_();
  const TensorDict leaves({{"shift", plain}, {"conv.bias", active}, {"norm.running_mean", mean}});
  {
    const ToModuleGuard guard(leaves, module_);
    const TensorDict now = guard.current();
    EXPECT_FALSE(now["shift"].is_same(plain));
    EXPECT_TRUE(now["shift"].requires_grad());
    EXPECT_EQ(now["shift"].data_ptr(), plain.data_ptr());
    plain.add_(1);
    EXPECT_EQ(now["shift"]._version(), plain._version());
    EXPECT_TRUE(now["conv.bias"].is_same(active));
    EXPECT_TRUE(now["norm.running_mean"].is_same(mean));
  }
  const ToModuleGuard guard(leaves, module_, {.preserve_module_state = false});
  EXPECT_TRUE(guard.current()["shift"].is_same(plain));
  EXPECT_FALSE(plain.requires_grad());
}

TEST_F(ScriptModuleTest, ListsEveryUnknownName) {
  const Tensor one = torch::ones({1});
  const TensorDict leaves(
      {{"shift", torch::ones({4}, torch::kDouble)}, {"layers.0.wieght", one}, {"layers.1", one}, {"training", one}});
  const auto message = ThrowsWith<c10::IndexError>(
      "to_module: 3 leaves do not fit module Cnn", "\"layers.0.wieght\"", "\"layers.0\" has: weight, bias",
      "\"layers.1\": the module has no parameter or buffer of that name; it is a sub-module",
      "\"training\": the module has no parameter or buffer of that name; it is an attribute", "unchanged");
  EXPECT_THAT([&] { to_module(leaves, module_); }, message);
  expect_same_handles(before_, module_);
}

TEST_F(ScriptModuleTest, ListsEveryWrongShapeAndType) {
  const TensorDict leaves({{"kernel", torch::ones({4, 4, 3, 3}, torch::kDouble)},
                           {"shift", torch::ones({5}, torch::kDouble)},
                           {"layers.1.1.weight", torch::ones({64, 3}, torch::kDouble)},
                           {"conv.bias", torch::ones({4}, torch::kLong)}});
  EXPECT_THAT(
      [&] { ToModuleGuard(leaves, module_); },
      ThrowsWith<c10::ValueError>("to_module: 3 leaves do not fit module Cnn", "\"shift\": shape [5], expected [4]",
                                  "\"layers.1.1.weight\": shape [64, 3], expected [3, 64]",
                                  "\"conv.bias\": Long, expected a floating point", "unchanged"));
  EXPECT_THAT(
      [&] {
        functional_call(module_, leaves, torch::ones({1, 1, 8, 8}, torch::kDouble));
      },
      ThrowsWith<c10::ValueError>("functional_call: 2 leaves", "\"shift\"", "\"layers.1.1.weight\""));
  expect_same_handles(before_, module_);
  const ToModuleGuard guard(TensorDict({{"shift", torch::ones({5}, torch::kDouble)}}), module_,
                            {.check_shapes = false});
  EXPECT_EQ(module_.attr("shift").toTensor().size(0), 5);
}

// --- Tied and shared parameters, names without a tensor

class TiedScriptModuleTest : public ::testing::Test {
 protected:
  Tensor by_hand(const Tensor& matrix, const Tensor& other, const Tensor& weight, const Tensor& same) const {
    return torch::linear(torch::linear(x_, matrix) * weight, other) + same + 2;
  }

  Module module_ = load("tied");
  TensorDict state_ = from_module(module_).map([](const Tensor& leaf) { return leaf.detach(); });
  Tensor x_ = torch::randn({2, 3}, torch::kDouble), matrix_ = torch::randn({3, 3}, torch::kDouble),
         row_ = torch::randn({3}, torch::kDouble);
};

TEST_F(TiedScriptModuleTest, ReadsEachNameAndLeavesOtherTensorsAlone) {
  std::vector<std::string> names;
  for (const auto& [path, leaf] : state_.leaves()) names.push_back(path);
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("first.weight", "again.weight", "weight", "same"));
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"constant", x_}, {"list", x_}}), module_);
      },
      ThrowsWith<c10::IndexError>("2 leaves", "\"constant\"", "not registered", "\"list\""));
}

TEST_F(TiedScriptModuleTest, FunctionalCallTiesTheNamesOfOneParameter) {
  const TensorDict leaves({{"again.weight", matrix_}, {"weight", row_}});
  EXPECT_LT(distance(functional_call(module_, leaves, x_), by_hand(matrix_, matrix_, row_, row_)), kTolerance);
  EXPECT_THAT(
      [&] {
        functional_call(module_, {leaves, TensorDict({{"same", row_.clone()}})}, x_);
      },
      ThrowsWith<c10::ValueError>("conflicting leaves for module Tied", "\"weight\" and \"same\""));
}

TEST_F(TiedScriptModuleTest, ToModuleFollowsEachName) {
  const ToModuleGuard guard(TensorDict({{"again.weight", matrix_}, {"weight", row_}}), module_);
  EXPECT_LT(distance(module_.forward({x_}).toTensor(), by_hand(state_["first.weight"], matrix_, row_, state_["same"])),
            kTolerance);
}

TEST_F(TiedScriptModuleTest, ALeafThatIsUsedTwiceStaysOneTensor) {
  const ToModuleGuard guard(TensorDict({{"weight", row_}, {"same", row_}}), module_);
  EXPECT_TRUE(module_.attr("weight").toTensor().is_same(module_.attr("same").toTensor()));
  EXPECT_TRUE(module_.attr("weight").toTensor().requires_grad());
}

TEST_F(TiedScriptModuleTest, ANameThatWasCompiledAsNoneTakesNoLeaf) {
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"absent", row_}, {"first.bias", row_}}), module_);
      },
      ThrowsWith<c10::ValueError>("2 leaves", "\"absent\": shape [3], expected no leaf", "\"first.bias\""));
}

TEST_F(TiedScriptModuleTest, AnOptionalParameterTakesALeafAndIsNoneAgain) {
  Module module("Made");
  module.register_attribute("bias", c10::OptionalType::create(c10::TensorType::get()), c10::IValue(),
                            /*is_param=*/true);
  EXPECT_TRUE(from_module(module).empty());
  {
    const ToModuleGuard guard(TensorDict({{"bias", row_}}), module);
    EXPECT_TRUE(module.attr("bias").toTensor().is_same(row_));
    EXPECT_TRUE(guard.swapped_out().empty());
  }
  EXPECT_TRUE(module.attr("bias").isNone());
}

TEST_F(TiedScriptModuleTest, ASharedSubmoduleIsWrittenOnce) {
  Module child("Child"), parent("Parent");
  child.register_parameter("w", torch::ones({3}), /*is_buffer=*/false);
  parent.register_module("left", child);
  parent.register_module("right", child);
  const Tensor old = child.attr("w").toTensor();
  EXPECT_EQ(from_module(parent).size(), 2u);
  const Tensor leaf = torch::zeros({3}).requires_grad_();
  {
    const ToModuleGuard guard(TensorDict({{"left.w", leaf}, {"right.w", leaf}}), parent);
    EXPECT_TRUE(child.attr("w").toTensor().is_same(leaf));
    EXPECT_TRUE(guard.swapped_out()["right.w"].is_same(old));
  }
  EXPECT_TRUE(child.attr("w").toTensor().is_same(old));
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"left.w", leaf}, {"right.w", torch::ones({3})}}), parent);
      },
      ThrowsWith<c10::ValueError>("conflicting leaves for module Parent", "\"left.w\" and \"right.w\""));
  EXPECT_TRUE(child.attr("w").toTensor().is_same(old));
}

// --- Arguments, results, and what cannot be called

TEST(ScriptCallTest, ReturnsTheTypeThatIsAskedFor) {
  const Module module = load("several");
  const TensorDict params = from_module(module);
  const Tensor x = torch::randn({3}, torch::kDouble);
  const auto [y, scaled] = functional_call<std::tuple<Tensor, Tensor>>(module, params, x);
  EXPECT_LT(distance(y, torch::linear(x, params["fc.weight"], params["fc.bias"])), kTolerance);
  EXPECT_TRUE(scaled.equal(2 * x));
  const c10::IValue both = functional_call<c10::IValue>(module, params, x, 3.0);
  EXPECT_TRUE(both.toTupleRef().elements()[1].toTensor().equal(3 * x));
  EXPECT_THAT([&] { functional_call(module, params, x); },
              ThrowsWith<c10::TypeError>("forward of Several returned", "Tuple", "expected a Tensor"));
  EXPECT_ANY_THROW(functional_call(module, params));
  EXPECT_ANY_THROW(functional_call(module, params, x, 1.0, x));
}

TEST(ScriptCallTest, RunsAfterACallWithoutTheOptimiser) {
  Module module = load("several");
  const TensorDict params = from_module(module);
  const Tensor x = torch::randn({3}, torch::kDouble);
  const torch::jit::GraphOptimizerEnabledGuard off(false);
  const Tensor expected = module.forward({x}).toTupleRef().elements()[0].toTensor();
  const auto actual = functional_call<std::tuple<Tensor, Tensor>>(module, params, x);
  EXPECT_TRUE(std::get<0>(actual).equal(expected));
  EXPECT_FALSE(torch::jit::getGraphExecutorOptimize());
}

TEST(ScriptCallTest, ForgetsAModuleThatIsGone) {
  c10::weak_intrusive_ptr<c10::ivalue::Object> object(Module("Any")._ivalue());
  {
    const Module module = load("mlp");
    functional_call(module, from_module(module), torch::ones({3}, torch::kDouble));
    object = c10::weak_intrusive_ptr<c10::ivalue::Object>(module._ivalue());
    EXPECT_FALSE(object.expired());
  }
  EXPECT_TRUE(object.expired());
}

TEST(ScriptCallTest, RefusesCallsThroughAnInterface) {
  Module module = load("by_interface");
  const TensorDict params = from_module(module);
  EXPECT_EQ(params.size(), 2u);
  const Tensor x = torch::ones({3}, torch::kDouble);
  EXPECT_THAT([&] { functional_call(module, params, x); },
              ThrowsWith<c10::NotImplementedError>("forward of ByInterface", "forward of __torch__.Activation"));
  const TensorDict zeros = params.map([](const Tensor& leaf) { return torch::zeros_like(leaf); });
  const ToModuleGuard guard(zeros, module);
  EXPECT_EQ(module.forward({x}).toTensor().abs().sum().item<double>(), 0);
}

TEST(ScriptCallTest, AFrozenModuleHasNoParameters) {
  Module module = load("frozen");
  EXPECT_TRUE(from_module(module).empty());
  const Tensor x = torch::ones({3}, torch::kDouble);
  EXPECT_TRUE(functional_call(module, TensorDict(), x).equal(module.forward({x}).toTensor()));
  EXPECT_THAT(
      [&] {
        functional_call(module, TensorDict({{"0.weight", x}}), x);
      },
      ThrowsWith<c10::IndexError>("\"0.weight\"", "torch.jit.freeze"));
}

}  // namespace
}  // namespace graft
