// W: how names find their places, and what to_module returns. I: what is installed where.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "tensordict/copy.h"
#include "tests/semantics/modules.h"
#include "tests/semantics/table.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {

using enum Verdict;
using torch::Tensor;
using torch::nn::Linear;

namespace {

std::vector<std::string> paths(const TensorDict& tree) {
  std::vector<std::string> paths;
  for (const auto& [path, leaf] : tree.leaves()) paths.push_back(path);
  return paths;
}

template <typename Exception, typename... Parts>
void expect_refused(const TensorDict& tree, torch::nn::Module& module, const Parts&... parts) {
  const Snapshot before(module);
  EXPECT_THAT([&] { to_module(tree, module); },
              ThrowsWith<Exception>("to_module", "The module is unchanged", parts...));
  EXPECT_THAT([&] { ToModuleGuard guard(tree, module); }, ThrowsWith<Exception>(parts...));
  EXPECT_EQ(before.changes_to(Snapshot(module)), "");
}

Linear frozen_linear() {
  Linear linear(3, 4);
  for (Tensor& parameter : linear->parameters()) parameter.set_requires_grad(false);
  return linear;
}

// --- W

void names_go_to_entries() {
  Net net;
  const TensorDict tree({{"norm.running_mean", torch::full({4}, 7.)}, {"fc1.bias", torch::full({4}, 3.)}});
  const auto old = to_module(tree, *net);
  EXPECT_EQ(net->norm->running_mean[0].item<float>(), 7);
  EXPECT_EQ(net->fc1->bias[0].item<float>(), 3);
  EXPECT_EQ(paths(*old), paths(tree));
}

void returns_the_old_tensors() {
  Net net;
  const TensorDict held = from_module(*net);
  const auto old = to_module(numbered_leaves(*net), *net);
  EXPECT_EQ(paths(*old), paths(held));
  EXPECT_TRUE(old->batch_size().empty());
  for (const auto& [path, value] : old->leaves()) EXPECT_TRUE(value.is_same(held.at(path))) << path;
}

void is_restored_by_hand() {
  Net net;
  const Snapshot before(*net);
  to_module(*to_module(numbered_leaves(*net), *net), *net);
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void returns_nothing_if_told() {
  Net net;
  EXPECT_FALSE(to_module(numbered_leaves(*net), *net, {.return_swap = false}).has_value());
  EXPECT_EQ(net->fc1->weight[0][0].item<float>(), 0.5);
}

void a_guard_shows_the_old_values() {
  Net net;
  const Tensor weight = net->fc1->weight;
  const ToModuleGuard guard(numbered_leaves(*net), *net);
  EXPECT_TRUE(guard.swapped_out().at("fc1.weight").is_same(weight));
}

void a_guard_restores_without_swap_too() {
  Net net;
  const Snapshot before(*net);
  { const ToModuleGuard guard(numbered_leaves(*net), *net, {.return_swap = false}); }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void missing_names_stay() {
  Net net;
  const Tensor weight = net->fc1->weight;
  const auto old = to_module(TensorDict({{"fc1.bias", torch::zeros({4})}}), *net);
  EXPECT_TRUE(net->fc1->weight.is_same(weight));
  EXPECT_EQ(old->size(), 1);
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"fc1.bias", torch::zeros({4})}}), *net, {.strict = true});
      },
      ThrowsWith<c10::ValueError>("strict", "\"fc1.weight\": got no leaf", "\"norm.running_mean\": got no leaf"));
}

void an_unknown_name_is_refused_by_its_path() {
  Net net;
  expect_refused<c10::IndexError>(TensorDict({{"fc1.gain", torch::zeros({4})}, {"fc1.bias", torch::zeros({4})}}), *net,
                                  "\"fc1.gain\"", "weight, bias");
}

void an_unknown_module_is_refused_by_its_path() {
  Net net;
  expect_refused<c10::IndexError>(TensorDict({{"fc9.bias", torch::zeros({4})}}), *net, "\"fc9.bias\"",
                                  "fc1, norm, fc2");
}

void nothing_is_written_after_a_failure() {
  Net net;
  TensorDict tree = numbered_leaves(*net);
  tree.set("zzz", torch::zeros({1}));
  expect_refused<c10::IndexError>(tree, *net, "\"zzz\"");
}

void leaves_and_modules_are_told_apart() {
  Net net;
  expect_refused<c10::IndexError>(TensorDict({{"fc1", torch::zeros({4})}}), *net, "\"fc1\"", "sub-module");
  expect_refused<c10::IndexError>(TensorDict({{"fc1.weight.x", torch::zeros({4})}}), *net, "\"fc1.weight.x\"");
}

void an_empty_tree_does_nothing() {
  Net net;
  const Snapshot before(*net);
  EXPECT_TRUE(to_module(TensorDict(), *net)->empty());
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void order_stays() {
  Net net;
  const auto order = net->named_parameters().keys();
  const TensorDict tree({{"fc2.weight", torch::zeros({2, 4})}, {"fc1.bias", torch::zeros({4})}});
  {
    const ToModuleGuard guard(tree, *net);
    EXPECT_EQ(net->named_parameters().keys(), order);
  }
  EXPECT_EQ(net->named_parameters().keys(), order);
  to_module(tree, *net);
  EXPECT_EQ(net->named_parameters().keys(), order);
}

void batched_trees_outside_vmap_are_refused_by_shape() {
  Linear linear(3, 4);
  const TensorDict tree({{"weight", torch::zeros({5, 4, 3})}, {"bias", torch::zeros({5, 4})}}, {5});
  expect_refused<c10::ValueError>(tree, *linear, "\"weight\": shape [5, 4, 3], expected [4, 3]", "\"bias\"");
  const ToModuleGuard guard(tree, *linear, {.check_shapes = false});
  EXPECT_EQ(linear->weight.dim(), 3);
}

void other_dtypes_are_installed_uncast() {
  Linear linear(3, 4);
  const TensorDict tree = to(numbered_leaves(*linear), torch::kDouble);
  const ToModuleGuard guard(tree, *linear);
  EXPECT_EQ(linear->weight.scalar_type(), torch::kDouble);
  EXPECT_EQ(linear->forward(torch::ones({1, 3}, torch::kDouble)).scalar_type(), torch::kDouble);
}

void gradients_of_old_values_stay() {
  Linear linear(3, 4);
  linear->forward(torch::ones({1, 3})).sum().backward();
  const Tensor grad = linear->weight.grad();
  {
    const ToModuleGuard guard(numbered_leaves(*linear), *linear);
    EXPECT_FALSE(linear->weight.grad().defined());
    linear->forward(torch::ones({1, 3})).sum().backward();
    EXPECT_TRUE(linear->weight.grad().defined());
  }
  EXPECT_TRUE(linear->weight.grad().is_same(grad));
}

// --- I

void a_leaf_with_grad_enters_as_it_is() {
  Linear linear(3, 4);
  const TensorDict tree = numbered_leaves_with_grad(*linear);
  const ToModuleGuard guard(tree, *linear);
  EXPECT_TRUE(linear->weight.is_same(tree.at("weight")));
  EXPECT_TRUE(linear->named_parameters()["weight"].is_same(tree.at("weight")));
  linear->forward(torch::ones({2, 3})).sum().backward();
  EXPECT_TRUE(tree.at("bias").grad().equal(torch::full({4}, 2.)));
}

void a_leaf_with_grad_keeps_its_flag_in_a_frozen_module() {
  Linear linear = frozen_linear();
  const TensorDict tree = numbered_leaves_with_grad(*linear);
  const ToModuleGuard guard(tree, *linear);
  EXPECT_TRUE(linear->weight.is_same(tree.at("weight")));
  EXPECT_TRUE(linear->forward(torch::ones({2, 3})).requires_grad());
}

void a_plain_leaf_enters_as_an_alias_with_the_flag() {
  Linear linear(3, 4);
  const TensorDict tree = numbered_leaves(*linear);
  {
    const ToModuleGuard guard(tree, *linear);
    EXPECT_TRUE(linear->weight.requires_grad());
    EXPECT_TRUE(is_alias(linear->weight, tree.at("weight")));
    EXPECT_FALSE(tree.at("weight").requires_grad());
    EXPECT_EQ(linear->parameters().size(), 2);
  }
  const ToModuleGuard guard(tree, *linear, {.preserve_module_state = false});
  EXPECT_TRUE(linear->weight.is_same(tree.at("weight")));
  EXPECT_TRUE(linear->named_parameters()["weight"].is_same(tree.at("weight")));
}

void a_computed_leaf_keeps_its_history() {
  Linear linear(3, 4);
  const Tensor scale = torch::ones({}).requires_grad_();
  const TensorDict tree = map(numbered_leaves(*linear), [&](const Tensor& leaf) { return leaf * scale; });
  const ToModuleGuard guard(tree, *linear);
  EXPECT_TRUE(linear->weight.is_same(tree.at("weight")));
  linear->forward(torch::ones({1, 3})).sum().backward();
  EXPECT_EQ(scale.grad().item<float>(), 4 * (3 * 0.5 + 1.5));
}

void a_batched_leaf_enters_as_it_is() {
  Linear linear(3, 4);
  const Tensor weights = torch::randn({5, 4, 3});
  const auto forward = [&](const Tensor& weight) {
    const ToModuleGuard guard(TensorDict({{"weight", weight}}), *linear);
    EXPECT_TRUE(linear->weight.is_same(weight));
    EXPECT_EQ(linear->named_parameters().size(), 2);
    return linear->forward(torch::ones({3}));
  };
  EXPECT_TRUE(vmap(forward)(weights).allclose(weights.sum(-1) + linear->bias));
}

void a_wrapped_leaf_enters_as_it_is() {
  Linear linear(3, 4);
  const auto loss = [&](const Tensor& weight) {
    const ToModuleGuard guard(TensorDict({{"weight", weight}}), *linear);
    EXPECT_TRUE(linear->weight.is_same(weight));
    return linear->forward(torch::ones({3})).sum();
  };
  EXPECT_TRUE(grad(loss)(torch::randn({4, 3})).equal(torch::ones({4, 3})));
}

void a_dual_leaf_keeps_its_tangent() {
  Linear linear(3, 4);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const Tensor dual = at::_make_dual(torch::zeros({4, 3}), torch::ones({4, 3}), level);
  {
    const ToModuleGuard guard(TensorDict({{"weight", dual}}), *linear);
    EXPECT_TRUE(linear->forward(torch::ones({3}))._fw_grad(level).equal(torch::full({4}, 3.)));
  }
  torch::autograd::ForwardADLevel::release_idx(level);
}

void an_integer_leaf_is_refused_where_grad_is_required() {
  Linear linear(3, 4);
  expect_refused<c10::ValueError>(
      TensorDict({{"bias", torch::zeros({4})}, {"weight", torch::zeros({4, 3}, torch::kInt)}}), *linear,
      "\"weight\": Int, expected a floating point or complex type");
  const ToModuleGuard guard(TensorDict({{"weight", torch::zeros({4, 3}, torch::kInt)}}), *linear,
                            {.preserve_module_state = false});
  EXPECT_EQ(linear->weight.scalar_type(), torch::kInt);
}

void an_integer_leaf_enters_a_frozen_parameter() {
  Linear linear = frozen_linear();
  const ToModuleGuard guard(TensorDict({{"weight", torch::zeros({4, 3}, torch::kInt)}}), *linear);
  EXPECT_EQ(linear->weight.scalar_type(), torch::kInt);
}

void any_leaf_enters_a_buffer_as_it_is() {
  Net net;
  const Tensor plain = torch::zeros({4});
  const Tensor with_grad = torch::ones({4}).requires_grad_();
  const TensorDict tree({{"norm.running_mean", plain}, {"norm.running_var", with_grad}});
  {
    const ToModuleGuard guard(tree, *net);
    EXPECT_TRUE(net->norm->running_mean.is_same(plain));
    EXPECT_TRUE(net->norm->running_var.is_same(with_grad));
    EXPECT_EQ(net->named_buffers().size(), 3);
    EXPECT_EQ(net->named_parameters().size(), 5);
  }
  EXPECT_EQ(net->named_buffers().size(), 3);
}

void an_empty_parameter_takes_a_leaf_and_is_empty_again() {
  Linear linear(torch::nn::LinearOptions(3, 4).bias(false));
  for (const Tensor& leaf : {torch::ones({4}), torch::ones({4}).requires_grad_()}) {
    const ToModuleGuard guard(TensorDict({{"bias", leaf}}), *linear);
    EXPECT_TRUE(linear->bias.is_same(leaf));
    EXPECT_EQ(linear->parameters().size(), 2);
    EXPECT_TRUE(guard.swapped_out().empty());
  }
  EXPECT_FALSE(linear->bias.defined());
  EXPECT_EQ(linear->parameters().size(), 1);
}

void an_empty_buffer_takes_a_leaf_and_is_empty_again() {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(4).track_running_stats(false));
  {
    const ToModuleGuard guard(TensorDict({{"running_mean", torch::ones({4})}}), *norm);
    EXPECT_TRUE(norm->running_mean.defined());
  }
  EXPECT_FALSE(norm->running_mean.defined());
}

void other_shapes_are_refused() {
  Linear linear(3, 4);
  expect_refused<c10::ValueError>(TensorDict({{"weight", torch::zeros({4, 2})}, {"bias", torch::zeros({3})}}), *linear,
                                  "2 leaves do not fit", "\"weight\": shape [4, 2], expected [4, 3]",
                                  "\"bias\": shape [3], expected [4]");
}

void an_inference_tensor_enters_where_autograd_allows() {
  Tensor leaf;
  {
    const c10::InferenceMode inference;
    leaf = torch::ones({4, 3});
  }
  Linear linear = frozen_linear();
  const ToModuleGuard guard(TensorDict({{"weight", leaf}}), *linear);
  EXPECT_TRUE(linear->forward(torch::ones({3}))[0].item<float>() > 2);
}

}  // namespace

std::vector<std::string> ids() { return series({{"W", 22}, {"I", 25}}); }

std::vector<Row> rows() {
  return {
      {"W1", kSame, "names go to parameters and buffers, in the tree's order", names_go_to_entries},
      {"W2", kSame, "the old tensors themselves come back, without batch size", returns_the_old_tensors},
      {"W3", kSame, "to_module of what came back restores", is_restored_by_hand},
      {"W4", kSame, "return_swap = false returns nothing", returns_nothing_if_told},
      {"W5", kSame, "the guard shows the old values", a_guard_shows_the_old_values},
      {"W6", kBetter, "a guard with return_swap = false restores; Python leaves the module overwritten",
       a_guard_restores_without_swap_too},
      {"W7", kBetter, "names without a leaf stay; strict, which Python lacks, lists them", missing_names_stay},
      {"W8", kBetter, "an unknown name is an error with its path and the names there are; Python gives the last part",
       an_unknown_name_is_refused_by_its_path},
      {"W9", kSame, "so is a name in an unknown module", an_unknown_module_is_refused_by_its_path},
      {"W10", kBetter, "nothing is written when one leaf fails; Python leaves what came before",
       nothing_is_written_after_a_failure},
      {"W11", kSame, "a leaf for a module, and a tree for a parameter, are errors", leaves_and_modules_are_told_apart},
      {"W12", kNoMeaning, "no module registers a sub-module that is null under a name one could use"},
      {"W13", kNoMeaning, "a TensorDict holds tensors alone"},
      {"W14", kNoMeaning, "modules have no extra state beside save and load, see the S rows"},
      {"W15", kNoMeaning, "what is no module does not compile"},
      {"W16", kSame, "an empty tree does nothing", an_empty_tree_does_nothing},
      {"W17", kNoMeaning, "a tree has no empty subtrees"},
      {"W18", kBetter, "the order of registration stays; Python moves written names to the end", order_stays},
      {"W19", kBetter, "a batched tree outside vmap is refused by its shapes; Python installs it",
       batched_trees_outside_vmap_are_refused_by_shape},
      {"W20", kSame, "leaves are not moved or cast", other_dtypes_are_installed_uncast},
      {"W21", kSame, "gradients of the old values stay", gradients_of_old_values_stay},
      {"W22", kNoMeaning, "LibTorch refuses dots in names"},
      {"I1", kSame, "a leaf that requires grad enters as it is", a_leaf_with_grad_enters_as_it_is},
      {"I2", kBetter, "also where the parameter is frozen; Python wraps it and loses the gradient",
       a_leaf_with_grad_keeps_its_flag_in_a_frozen_module},
      {"I3", kBetter,
       "a plain leaf enters as an alias with the parameter's flag, or as it is without preserve_module_state and still "
       "registered; Python deregisters it",
       a_plain_leaf_enters_as_an_alias_with_the_flag},
      {"I4", kSame, "a plain tensor that requires grad is what a Parameter is", a_leaf_with_grad_enters_as_it_is},
      {"I5", kSame, "a computed leaf keeps its history", a_computed_leaf_keeps_its_history},
      {"I6", kSame, "a batched leaf enters as it is", a_batched_leaf_enters_as_it_is},
      {"I7", kSame, "so does one that grad wraps", a_wrapped_leaf_enters_as_it_is},
      {"I8", kBetter, "so does a dual, with its tangent; Python drops the tangent", a_dual_leaf_keeps_its_tangent},
      {"I9", kBetter, "an integer leaf is refused where grad is required, and nothing is written",
       an_integer_leaf_is_refused_where_grad_is_required},
      {"I10", kSame, "an integer leaf enters a frozen parameter", an_integer_leaf_enters_a_frozen_parameter},
      {"I11", kSame, "any leaf enters a buffer as it is", any_leaf_enters_a_buffer_as_it_is},
      {"I12", kBetter,
       "a leaf with grad too, attached, and the buffer stays one; Python detaches it, or moves it for good",
       any_leaf_enters_a_buffer_as_it_is},
      {"I13", kBetter, "an empty parameter takes a leaf and is empty again; Python's exit fails",
       an_empty_parameter_takes_a_leaf_and_is_empty_again},
      {"I14", kBetter, "a plain leaf too is then a parameter; Python makes it a plain attribute",
       an_empty_parameter_takes_a_leaf_and_is_empty_again},
      {"I15", kSame, "an empty buffer takes a leaf", an_empty_buffer_takes_a_leaf_and_is_empty_again},
      {"I16", kNoMeaning, "members that are not registered have no names"},
      {"I17", kNoMeaning, "as I16"},
      {"I18", kNoMeaning, "as I16"},
      {"I19", kBetter, "other shapes are refused, unless check_shapes = false; Python installs them",
       other_shapes_are_refused},
      {"I20", kSame, "other dtypes are installed", other_dtypes_are_installed_uncast},
      {"I21", kNoMeaning, "there are no memory-mapped leaves yet"},
      {"I22", kSame, "an inference tensor enters a frozen parameter", an_inference_tensor_enters_where_autograd_allows},
      {"I23", kNoMeaning, "LibTorch has no lazy modules; a module that grows is noticed, see the C rows"},
      {"I24", kNoMeaning, "parameters have no classes of their own"},
      {"I25", kNoMeaning, "nested tensors have no sizes to check; LibTorch's modules do not take them"},
  };
}

}  // namespace graft::testing
