// TensorDictParams, beside what Python's does in the same cases.
#include "functional/tensordict_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/to_module.h"
#include "tensordict/leafwise.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::Snapshot;
using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::Sequential;

TensorDict copy_of(const TensorDict& tree) {
  return tree.map([](const Tensor& leaf) { return leaf.detach().clone().set_requires_grad(leaf.requires_grad()); });
}

/// Parameters on two levels and an integer buffer.
TensorDict make_tree() {
  return TensorDict({{"layer.weight", torch::randn({3, 2}).set_requires_grad(true)},
                     {"layer.deep.scale", torch::randn({2}).set_requires_grad(true)},
                     {"bias", torch::randn({2}).set_requires_grad(true)},
                     {"layer.steps", torch::tensor(5)}});
}

TensorDict make_tied_tree() {
  const Tensor weight = torch::ones({2}).set_requires_grad(true);
  return TensorDict({{"encoder.weight", weight}, {"decoder.weight", weight}});
}

/// A module that computes with the leaves of a TensorDictParams.
struct ModelImpl : torch::nn::Cloneable<ModelImpl> {
  explicit ModelImpl(TensorDict initial) : initial(std::move(initial)) { ModelImpl::reset(); }
  void reset() override { params = register_module("params", TensorDictParams(copy_of(initial))); }
  Tensor forward(const Tensor& x) {
    const TensorDict tree = params->tree();
    return x.matmul(tree["layer.weight"]) * tree["layer.deep.scale"] + tree["bias"];
  }
  TensorDict initial;
  TensorDictParams params = nullptr;
};
TORCH_MODULE(Model);

std::vector<std::string> names(const torch::OrderedDict<std::string, Tensor>& dict) { return dict.keys(); }

// A1: Python makes buffers of bfloat16 and complex leaves.
TEST(TensorDictParamsTest, RegistersFloatingAndComplexLeavesAsParametersAndOthersAsBuffers) {
  TensorDict tree;
  for (const auto dtype : {torch::kFloat, torch::kDouble, torch::kHalf, torch::kBFloat16, torch::kComplexFloat}) {
    tree.set(std::string("p.") + c10::toString(dtype), torch::zeros({2}, dtype));
  }
  for (const auto dtype : {torch::kLong, torch::kInt, torch::kUInt8, torch::kBool}) {
    tree.set(std::string("b.") + c10::toString(dtype), torch::zeros({2}, dtype));
  }
  const TensorDictParams params(tree);
  EXPECT_EQ(names(params->named_parameters()),
            (std::vector<std::string>{"p.Float", "p.Double", "p.Half", "p.BFloat16", "p.ComplexFloat"}));
  EXPECT_EQ(names(params->named_buffers()), (std::vector<std::string>{"b.Long", "b.Int", "b.Byte", "b.Bool"}));
}

// A1
TEST(TensorDictParamsTest, SharesTheTensorsAndKeepsTheirFlags) {
  const TensorDict tree({{"trained", torch::zeros({2}).set_requires_grad(true)}, {"frozen", torch::zeros({2})}});
  const TensorDictParams params(tree);
  for (const auto& [path, leaf] : tree.leaves()) {
    EXPECT_TRUE(params->named_parameters()[path].is_same(leaf)) << path;
    EXPECT_TRUE(params->tree()[path].is_same(leaf)) << path;
  }
  EXPECT_TRUE(tree["trained"].requires_grad());
  EXPECT_FALSE(tree["frozen"].requires_grad());
}

// A1, B11, M4
TEST(TensorDictParamsTest, RegistersTheLeavesOfASecondTreeAsBuffers) {
  Sequential net(Linear(3, 2), torch::nn::BatchNorm1d(2));
  const TensorDictParams params(from_module(*net, State::kParameters), from_module(*net, State::kBuffers));
  EXPECT_EQ(names(params->named_parameters()), names(net->named_parameters()));
  EXPECT_EQ(names(params->named_buffers()), names(net->named_buffers()));
  const TensorDict tree = params->tree(), own = from_module(*net);
  EXPECT_EQ(tree.size(), own.size());
  for (const auto& [path, leaf] : own.leaves()) EXPECT_TRUE(tree[path].is_same(leaf)) << path;
}

// A2
TEST(TensorDictParamsTest, HasTheDottedNamesOfTheTree) {
  const TensorDict tree = make_tree();
  const TensorDictParams params(tree);
  EXPECT_EQ(names(params->named_parameters()), (std::vector<std::string>{"bias", "layer.weight", "layer.deep.scale"}));
  EXPECT_EQ(names(params->named_buffers()), (std::vector<std::string>{"layer.steps"}));
  EXPECT_THAT(params->tree(), TensorDictEq(tree));
  EXPECT_EQ(params->tree(State::kParameters).size(), 3);
  EXPECT_EQ(params->tree(State::kBuffers).size(), 1);
}

// A2
TEST(TensorDictParamsTest, GivesAParameterOfTwoNamesToAnOptimiserOnce) {
  const TensorDict tree = make_tied_tree();
  const TensorDictParams params(tree);
  EXPECT_EQ(names(params->named_parameters()), (std::vector<std::string>{"encoder.weight", "decoder.weight"}));
  ASSERT_EQ(params->parameters().size(), 1);
  torch::optim::SGD optimizer(params->parameters(), /*lr=*/0.5);
  (params->tree()["encoder.weight"] * 3 + params->tree()["decoder.weight"]).sum().backward();
  optimizer.step();
  EXPECT_TRUE(tree["decoder.weight"].equal(torch::full({2}, 1 - 0.5 * 4)));
}

TEST(TensorDictParamsTest, RefusesLeavesThatNoOptimiserCanChange) {
  const Tensor w = torch::ones({2}).set_requires_grad(true);
  const TensorDict tree({{"a.product", w * 2}, {"w", w}, {"sum", w + 1}});
  EXPECT_THAT([&] { TensorDictParams params(tree); },
              ThrowsWith<c10::ValueError>("TensorDictParams", "\"a.product\"", "\"sum\"", "expected a leaf"));
  EXPECT_NO_THROW(TensorDictParams(TensorDict({{"w", w}}), TensorDict({{"sum", w + 1}})));
}

TEST(TensorDictParamsTest, RefusesTreesThatDoNotGoTogether) {
  const Tensor x = torch::ones({2});
  EXPECT_THAT(
      [&] {
        TensorDictParams(TensorDict({{"x", x}}, {2}), TensorDict({{"y", x}}));
      },
      ThrowsWith<c10::ValueError>("batch size []", "[2]"));
  const TensorDict params({{"same", x}, {"node.leaf", x}, {"leaf", x}, {"other", x}});
  const TensorDict buffers({{"same", x}, {"node", x}, {"leaf.below", x}});
  EXPECT_THAT([&] { TensorDictParams(params, buffers); },
              ThrowsWith<c10::ValueError>("\"same\": in both", "\"node\": in both", "\"leaf\": in both"));
}

// A5
TEST(TensorDictParamsTest, SeesWhatIsDoneToItsLeavesInPlace) {
  const TensorDict tree = make_tree();
  const TensorDictParams params(tree);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& [path, leaf] : params->tree().leaves()) Tensor(leaf).zero_();
  }
  EXPECT_THAT(tree, TensorDictEq(zeros_like(tree)));
  EXPECT_TRUE(params->named_parameters()["bias"].is_same(tree["bias"]));
}

TEST(TensorDictParamsTest, TrainsTheLeavesOfTheTree) {
  const TensorDict tree = make_tree();
  const TensorDict before = copy_of(tree);
  TensorDictParams params(tree);
  torch::optim::SGD optimizer(params->parameters(), /*lr=*/0.1);
  (params->tree()["bias"].sum() * 2).backward();
  optimizer.step();
  EXPECT_TRUE(tree["bias"].allclose(before["bias"] - 0.2));
  EXPECT_TRUE(tree["layer.weight"].equal(before["layer.weight"]));
  params->zero_grad();
  EXPECT_FALSE(tree["bias"].grad().defined());
}

// A7
TEST(TensorDictParamsTest, ClonesIntoTensorsOfItsOwn) {
  TensorDict tree = make_tree();
  tree.set("frozen", torch::ones({2}));
  const TensorDictParams params(tree, TensorDict({{"mean", torch::ones({2})}}));
  params.ptr()->eval();
  const TensorDictParams clone(std::dynamic_pointer_cast<TensorDictParamsImpl>(params->clone()));
  EXPECT_EQ(names(clone->named_parameters()), names(params->named_parameters()));
  EXPECT_EQ(names(clone->named_buffers()), names(params->named_buffers()));
  EXPECT_THAT(clone->tree(), TensorDictEq(params->tree()));
  EXPECT_FALSE(clone->is_training());
  for (const auto& [path, leaf] : clone->tree().leaves()) {
    EXPECT_FALSE(leaf.is_alias_of(params->tree()[path])) << path;
    EXPECT_EQ(leaf.requires_grad(), params->tree()[path].requires_grad()) << path;
    EXPECT_TRUE(leaf.is_leaf()) << path;
  }
}

// A7
TEST(TensorDictParamsTest, ClonesTies) {
  const TensorDictParams params(make_tied_tree());
  const TensorDictParams clone(std::dynamic_pointer_cast<TensorDictParamsImpl>(params->clone()));
  EXPECT_TRUE(clone->tree()["encoder.weight"].is_same(clone->tree()["decoder.weight"]));
  EXPECT_FALSE(clone->tree()["encoder.weight"].is_same(params->tree()["encoder.weight"]));
}

// A7
TEST(TensorDictParamsTest, IsClonedWithItsParent) {
  Model model(make_tree());
  {
    const torch::NoGradGuard no_grad;
    model->params->tree()["bias"].fill_(7);  // no longer what reset() sets
  }
  Model clone(std::dynamic_pointer_cast<ModelImpl>(model->clone()));
  EXPECT_THAT(from_module(*clone), TensorDictEq(from_module(*model)));
  EXPECT_FALSE(clone->params->tree()["bias"].is_alias_of(model->params->tree()["bias"]));
  const Tensor x = torch::randn({4, 3});
  EXPECT_TRUE(clone->forward(x).equal(model->forward(x)));
  clone->forward(x).sum().backward();
  EXPECT_TRUE(clone->params->tree()["bias"].grad().defined());
  EXPECT_FALSE(model->params->tree()["bias"].grad().defined());
}

// A8
TEST(TensorDictParamsTest, IsCastInPlace) {
  const TensorDict tree = make_tree();
  TensorDictParams params(tree);
  const TensorDict before = copy_of(tree);
  params->to(torch::kDouble);
  for (const auto& [path, leaf] : params->tree().leaves()) {
    EXPECT_TRUE(leaf.is_same(tree[path])) << path;
    EXPECT_EQ(leaf.scalar_type(), torch::kDouble) << path;  // LibTorch casts integer buffers too
    EXPECT_TRUE(leaf.equal(before[path].to(torch::kDouble))) << path;
  }
  params->to(torch::Device(torch::kCPU), torch::kFloat);
  EXPECT_EQ(params->tree()["bias"].scalar_type(), torch::kFloat);
}

// A8
TEST(TensorDictParamsTest, ClonesToADevice) {
  const TensorDictParams params(make_tree());
  const TensorDictParams clone(
      std::dynamic_pointer_cast<TensorDictParamsImpl>(params->clone(torch::Device(torch::kMeta))));
  for (const auto& [path, leaf] : clone->tree().leaves()) {
    EXPECT_TRUE(leaf.is_meta()) << path;
    EXPECT_EQ(leaf.sizes(), params->tree()[path].sizes()) << path;
    EXPECT_FALSE(params->tree()[path].is_meta()) << path;
  }
}

std::string saved(const auto& module) {
  std::ostringstream stream;
  torch::save(module, stream);
  return stream.str();
}

void load_from(const std::string& text, auto& module) {
  std::istringstream stream(text);
  torch::load(module, stream);
}

TEST(TensorDictParamsTest, LoadsWhatItSaved) {
  TensorDict leaves = make_tree();
  leaves.set("z", torch::randn({2}, torch::kComplexFloat));
  leaves.set("h", torch::randn({2}, torch::kBFloat16));
  const TensorDict statistics({{"layer.mean", torch::randn({2})}});
  const TensorDictParams params(leaves, statistics);
  const TensorDict target = zeros_like(leaves);
  TensorDictParams loaded(target, zeros_like(statistics));
  load_from(saved(params), loaded);
  EXPECT_THAT(loaded->tree(), TensorDictEq(params->tree()));
  EXPECT_TRUE(loaded->tree()["bias"].is_same(target["bias"]));
  EXPECT_FALSE(target["bias"].requires_grad());
}

TEST(TensorDictParamsTest, KeepsTiesWhenItLoads) {
  TensorDict tree = make_tied_tree();
  const TensorDictParams params(tree.map([](const Tensor& leaf) { return leaf.detach() * 3; }));
  TensorDictParams loaded(tree);
  load_from(saved(params), loaded);
  EXPECT_TRUE(loaded->tree()["encoder.weight"].is_same(loaded->tree()["decoder.weight"]));
  EXPECT_TRUE(tree["encoder.weight"].equal(torch::full({2}, 3.)));
}

TEST(TensorDictParamsTest, IsSavedAndLoadedWithItsParent) {
  const Model model(make_tree());
  Model loaded(make_tree());
  load_from(saved(model), loaded);
  EXPECT_THAT(from_module(*loaded), TensorDictEq(from_module(*model.ptr())));
}

// A10
TEST(TensorDictParamsTest, LoadsNothingIfALeafDoesNotFit) {
  TensorDict other = make_tree();
  other.erase("layer.deep");
  other.set("extra.leaf", torch::ones({1}));
  other.set("layer.weight", torch::ones({2, 2}));
  other.set("layer.steps", torch::tensor(5.));
  const std::string text = saved(TensorDictParams(other));
  TensorDictParams params(make_tree());
  const TensorDict before = copy_of(params->tree());
  EXPECT_THAT([&] { load_from(text, params); },
              ThrowsWith<c10::ValueError>(
                  "TensorDictParams", "\"layer.deep.scale\": missing", "\"extra.leaf\": unexpected",
                  "\"layer.weight\": shape [2, 2], expected [3, 2]", "\"layer.steps\": dtype", "unchanged"));
  EXPECT_THAT(params->tree(), TensorDictEq(before));
}

// A12
TEST(TensorDictParamsTest, IsTheSourceOfASwap) {
  Sequential net(Linear(3, 2), torch::nn::BatchNorm1d(2)), twin(Linear(3, 2), torch::nn::BatchNorm1d(2));
  const TensorDictParams params(from_module(*twin, State::kParameters), from_module(*twin, State::kBuffers));
  const Tensor x = torch::randn({5, 3});
  {
    const ToModuleGuard guard(params->tree(), *net);
    EXPECT_TRUE(net->forward(x).equal(twin->forward(x)));
  }
  EXPECT_TRUE(params->tree()["1.num_batches_tracked"].equal(torch::tensor(2)));  // written in place, by both
}

// A13, F8: Python refuses to differentiate one.
TEST(TensorDictParamsTest, IsDifferentiatedByItsTree) {
  Linear net(3, 2);
  const TensorDictParams params(from_module(*net));
  const Tensor x = torch::randn({5, 3});
  const auto loss = [&](const TensorDict& leaves) { return functional_call(net, leaves, x).square().sum(); };
  const TensorDict gradients = grad(loss)(params->tree());
  net->forward(x).square().sum().backward();
  EXPECT_THAT(gradients, TensorDictNear(from_module(*net).map([](const Tensor& leaf) { return leaf.grad(); }), 1e-4));
}

TEST(TensorDictParamsTest, GetsTheGradientsOfAFunctionalCall) {
  Linear net(3, 2);
  const TensorDictParams params(copy_of(from_module(*net)));
  const Tensor x = torch::randn({5, 3});
  functional_call(net, params->tree(), x).square().sum().backward();
  EXPECT_FALSE(net->weight.grad().defined());
  net->forward(x).square().sum().backward();
  EXPECT_TRUE(params->named_parameters()["weight"].grad().allclose(net->weight.grad()));
  EXPECT_TRUE(params->named_parameters()["bias"].grad().allclose(net->bias.grad()));
}

// D1: in Python the other leaves vanish, and parameters() stays as it was.
TEST(TensorDictParamsTest, ShowsTheLeavesOfAGuard) {
  const TensorDictParams params(make_tree());
  const TensorDict before = params->tree();
  const Tensor weight = torch::zeros({3, 2}).set_requires_grad(true);
  const Snapshot snapshot(*params.ptr());
  {
    const ToModuleGuard guard(TensorDict({{"layer.weight", weight}}), *params.ptr());
    EXPECT_TRUE(params->tree()["layer.weight"].is_same(weight));
    EXPECT_TRUE(params->named_parameters()["layer.weight"].is_same(weight));
    EXPECT_EQ(params->tree().size(), before.size());
    EXPECT_TRUE(params->tree()["bias"].is_same(before["bias"]));
  }
  // D2
  for (const auto& [path, leaf] : before.leaves()) EXPECT_TRUE(params->tree()[path].is_same(leaf)) << path;
  EXPECT_EQ(snapshot.changes_to(Snapshot(*params.ptr())), "");
}

// D1
TEST(TensorDictParamsTest, RefusesLeavesThatDoNotFit) {
  const TensorDictParams params(make_tree());
  const TensorDict misfit({{"layer.weight", torch::zeros({2})}, {"layer.deep.scale", torch::zeros({3})}});
  EXPECT_THAT([&] { ToModuleGuard guard(misfit, *params.ptr()); },
              ThrowsWith<c10::ValueError>("\"layer.weight\"", "\"layer.deep.scale\"", "unchanged"));
  EXPECT_THAT(
      [&] {
        ToModuleGuard guard(TensorDict({{"layer.nothing", torch::zeros({2})}}), *params.ptr());
      },
      ThrowsWith<c10::IndexError>("\"layer.nothing\""));
}

// A4, D3
TEST(TensorDictParamsTest, HasItsLeavesReplacedByToModule) {
  const TensorDictParams params(make_tree());
  const TensorDict replacement = make_tree();
  const TensorDict old = *to_module(replacement, *params.ptr());
  for (const auto& [path, leaf] : replacement.leaves()) EXPECT_TRUE(params->tree()[path].is_same(leaf)) << path;
  EXPECT_TRUE(params->named_parameters()["layer.weight"].is_same(replacement["layer.weight"]));
  EXPECT_FALSE(old["bias"].is_same(replacement["bias"]));
  // A plain tensor enters as a parameter that requires grad, as what it replaces does.
  to_module(TensorDict({{"bias", torch::zeros({2})}}), *params.ptr());
  EXPECT_TRUE(params->named_parameters()["bias"].requires_grad());
  EXPECT_TRUE(params->tree()["bias"].equal(torch::zeros({2})));
}

// D4
TEST(TensorDictParamsTest, IsReachedInsideAParent) {
  Model model(make_tree());
  const TensorDict other = make_tree();
  TensorDict below;
  below.set("params", other);
  const Tensor x = torch::randn({4, 3});
  const Tensor expected = x.matmul(other["layer.weight"]) * other["layer.deep.scale"] + other["bias"];
  const Snapshot before(*model);
  {
    const ToModuleGuard guard(below, *model);
    EXPECT_TRUE(model->forward(x).equal(expected));
  }
  EXPECT_TRUE(functional_call(model, below, x).equal(expected));
  EXPECT_EQ(before.changes_to(Snapshot(*model)), "");
}

// D4
TEST(TensorDictParamsTest, PassesGradientsThroughAParent) {
  Model model(make_tree());
  const Tensor x = torch::randn({4, 3});
  const auto loss = [&](const TensorDict& leaves) { return functional_call(model, leaves, x).square().sum(); };
  const TensorDict gradients = grad(loss)(from_module(*model, State::kParameters));
  model->forward(x).square().sum().backward();
  for (const auto& [path, gradient] : gradients.leaves()) {
    EXPECT_TRUE(gradient.allclose(model->named_parameters()[path].grad(), 1e-4, 1e-5)) << path;
  }
}

TEST(TensorDictParamsTest, IsCalledForItsTree) {
  const TensorDictParams params(make_tree());
  const TensorDict other = make_tree();
  EXPECT_THAT(functional_call(params, other), TensorDictEq(other));
}

// M6
TEST(TensorDictParamsTest, IsReadByFromModule) {
  Model model(make_tree());
  for (const auto& [path, leaf] : model->params->tree().leaves()) {
    EXPECT_TRUE(from_module(*model->params.ptr())[path].is_same(leaf)) << path;
    EXPECT_TRUE(from_module(*model)["params." + path].is_same(leaf)) << path;
  }
}

// M3: Python makes a plain tree of an empty one.
TEST(TensorDictParamsTest, MayBeEmpty) {
  const TensorDictParams params(TensorDict(std::vector<int64_t>{3}));
  EXPECT_TRUE(params->tree().empty());
  EXPECT_EQ(params->tree().batch_size(), std::vector<int64_t>{3});
}

TEST(TensorDictParamsTest, KeepsTheBatchSize) {
  const TensorDict tree({{"a", torch::ones({4, 2})}, {"b.c", torch::ones({4})}}, {4});
  const TensorDictParams params(tree);
  EXPECT_EQ(params->tree().batch_size(), std::vector<int64_t>{4});
  EXPECT_THAT(params->tree(), TensorDictEq(tree));
  const TensorDictParams clone(std::dynamic_pointer_cast<TensorDictParamsImpl>(params->clone()));
  EXPECT_EQ(clone->tree().batch_size(), std::vector<int64_t>{4});
  const ToModuleGuard guard(TensorDict({{"b.c", torch::ones({3})}}), *params.ptr(), {.check_shapes = false});
  EXPECT_THAT([&] { (void)params->tree(); }, ThrowsWith<c10::ValueError>("\"b.c\"", "[3]"));
}

}  // namespace
}  // namespace graft
