// TensorDictParams with files, optimisers and parents. What it does case by case is in
// tests/semantics/params_test.cc.
#include "functional/tensordict_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <sstream>
#include <string>

#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tensordict/like.h"
#include "tests/testing/params_model.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::copy_of;
using testing::make_tied_tree;
using testing::make_tree;
using testing::Model;
using testing::TensorDictEq;
using testing::ThrowsWith;
using torch::Tensor;
using torch::nn::Linear;

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

TEST(TensorDictParamsTest, IsCalledForItsTree) {
  const TensorDictParams params(make_tree());
  const TensorDict other = make_tree();
  EXPECT_THAT(functional_call(params, other), TensorDictEq(other));
}

TEST(TensorDictParamsTest, KeepsTheBatchSize) {
  const TensorDict tree({{"a", torch::ones({4, 2})}, {"b.c", torch::ones({4})}}, {4});
  const TensorDictParams params(tree);
  EXPECT_EQ(params->tree().batch_size(), std::vector<int64_t>{4});
  EXPECT_THAT(params->tree(), TensorDictEq(tree));
  const ToModuleGuard guard(TensorDict({{"b.c", torch::ones({3})}}), *params.ptr(), {.check_shapes = false});
  EXPECT_THAT([&] { (void)params->tree(); }, ThrowsWith<c10::ValueError>("\"b.c\"", "[3]"));
}

}  // namespace
}  // namespace graft
