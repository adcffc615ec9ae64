// A: TensorDictParams, a tree as a module. D: it as the module of a swap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "functional/tree.h"
#include "tensordict/join.h"
#include "tensordict/like.h"
#include "tests/semantics/table.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/params_model.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft::testing {

using enum Verdict;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::Sequential;

namespace {

std::vector<std::string> names(const torch::OrderedDict<std::string, Tensor>& dict) { return dict.keys(); }

TensorDictParams clone_of(const TensorDictParams& params) {
  return TensorDictParams(std::dynamic_pointer_cast<TensorDictParamsImpl>(params->clone()));
}

// --- A

void types_decide_what_is_a_parameter() {
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

void tensors_are_shared_and_keep_their_flags() {
  const TensorDict tree({{"trained", torch::zeros({2}).set_requires_grad(true)}, {"frozen", torch::zeros({2})}});
  const TensorDictParams params(tree);
  for (const auto& [path, leaf] : tree.leaves()) {
    EXPECT_TRUE(params->named_parameters()[path].is_same(leaf)) << path;
    EXPECT_TRUE(params->tree()[path].is_same(leaf)) << path;
  }
  EXPECT_TRUE(tree["trained"].requires_grad());
  EXPECT_FALSE(tree["frozen"].requires_grad());
}

void names_are_those_of_the_tree() {
  const TensorDict tree = make_tree();
  const TensorDictParams params(tree);
  EXPECT_EQ(names(params->named_parameters()), (std::vector<std::string>{"bias", "layer.weight", "layer.deep.scale"}));
  EXPECT_EQ(names(params->named_buffers()), (std::vector<std::string>{"layer.steps"}));
  EXPECT_THAT(params->tree(), TensorDictEq(tree));
  EXPECT_EQ(params->tree(State::kParameters).size(), 3);
  EXPECT_EQ(params->tree(State::kBuffers).size(), 1);
}

void an_optimiser_gets_a_tied_parameter_once() {
  const TensorDict tree = make_tied_tree();
  const TensorDictParams params(tree);
  EXPECT_EQ(names(params->named_parameters()), (std::vector<std::string>{"encoder.weight", "decoder.weight"}));
  ASSERT_EQ(params->parameters().size(), 1);
  torch::optim::SGD optimizer(params->parameters(), /*lr=*/0.5);
  (params->tree()["encoder.weight"] * 3 + params->tree()["decoder.weight"]).sum().backward();
  optimizer.step();
  EXPECT_TRUE(tree["decoder.weight"].equal(torch::full({2}, 1 - 0.5 * 4)));
}

void changes_in_place_are_seen() {
  const TensorDict tree = make_tree();
  const TensorDictParams params(tree);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& [path, leaf] : params->tree().leaves()) Tensor(leaf).zero_();
  }
  EXPECT_THAT(tree, TensorDictEq(zeros_like(tree)));
  EXPECT_TRUE(params->named_parameters()["bias"].is_same(tree["bias"]));
}

void a_clone_has_tensors_of_its_own() {
  TensorDict tree = make_tree();
  tree.set("frozen", torch::ones({2}));
  const TensorDictParams params(tree, TensorDict({{"mean", torch::ones({2})}}));
  params.ptr()->eval();
  const TensorDictParams clone = clone_of(params);
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

void a_clone_keeps_ties() {
  const TensorDictParams params(make_tied_tree());
  const TensorDictParams clone = clone_of(params);
  EXPECT_TRUE(clone->tree()["encoder.weight"].is_same(clone->tree()["decoder.weight"]));
  EXPECT_FALSE(clone->tree()["encoder.weight"].is_same(params->tree()["encoder.weight"]));
}

void a_parent_clones_it() {
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

void a_cast_is_in_place() {
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

void a_clone_to_a_device_leaves_the_original() {
  const TensorDictParams params(make_tree());
  const TensorDictParams clone(
      std::dynamic_pointer_cast<TensorDictParamsImpl>(params->clone(torch::Device(torch::kMeta))));
  for (const auto& [path, leaf] : clone->tree().leaves()) {
    EXPECT_TRUE(leaf.is_meta()) << path;
    EXPECT_EQ(leaf.sizes(), params->tree()[path].sizes()) << path;
    EXPECT_FALSE(params->tree()[path].is_meta()) << path;
  }
}

void loading_other_keys_lists_them_all() {
  TensorDict other = make_tree();
  other.erase("layer.deep");
  other.set("extra.leaf", torch::ones({1}));
  other.set("layer.weight", torch::ones({2, 2}));
  other.set("layer.steps", torch::tensor(5.));
  std::stringstream file;
  torch::save(TensorDictParams(other), file);
  TensorDictParams params(make_tree());
  const TensorDict before = copy_of(params->tree());
  EXPECT_THAT([&] { torch::load(params, file); },
              ThrowsWith<c10::ValueError>(
                  "TensorDictParams", "\"layer.deep.scale\": missing", "\"extra.leaf\": unexpected",
                  "\"layer.weight\": shape [2, 2], expected [3, 2]", "\"layer.steps\": dtype", "unchanged"));
  EXPECT_THAT(params->tree(), TensorDictEq(before));
}

void its_tree_is_swapped_into_a_module() {
  Sequential net(Linear(3, 2), torch::nn::BatchNorm1d(2)), twin(Linear(3, 2), torch::nn::BatchNorm1d(2));
  const TensorDictParams params(from_module(*twin, State::kParameters), from_module(*twin, State::kBuffers));
  const Tensor x = torch::randn({5, 3});
  {
    const ToModuleGuard guard(params->tree(), *net);
    EXPECT_TRUE(net->forward(x).equal(twin->forward(x)));
  }
  EXPECT_TRUE(params->tree()["1.num_batches_tracked"].equal(torch::tensor(2)));  // written in place, by both
}

void a_buffer_reassigned_in_a_swap_leaves_it_alone() {
  Sequential net(Linear(3, 2), torch::nn::BatchNorm1d(2));
  const TensorDictParams params(from_module(*net, State::kParameters), copy_of(from_module(*net, State::kBuffers)));
  const Snapshot before(*params.ptr());
  {
    const ToModuleGuard guard(params->tree(), *net);
    net[1]->as<torch::nn::BatchNorm1d>()->running_mean = torch::ones({2});
    EXPECT_TRUE(guard.current()["1.running_mean"].equal(torch::ones({2})));
  }
  EXPECT_EQ(before.changes_to(Snapshot(*params.ptr())), "");
}

void what_is_computed_from_its_tree_is_a_tree() {
  const TensorDictParams params(TensorDict({{"a", torch::ones({4, 2})}, {"b.c", torch::ones({4})}}, {4}));
  const TensorDict row = unbind(params->tree())[1];
  EXPECT_TRUE(row.batch_size().empty());
  EXPECT_EQ(row["a"].sizes(), torch::IntArrayRef({2}));
  EXPECT_EQ(clone_of(params)->tree().batch_size(), std::vector<int64_t>{4});
}

void it_is_no_tree_itself() {
  static_assert(!Tree<TensorDictParams> && !HasTreeParts<TensorDictParams>);
  static_assert(Tree<decltype(std::declval<TensorDictParams>()->tree())>);
}

// --- D

void a_guard_shows_its_leaves_and_keeps_the_others() {
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
  for (const auto& [path, leaf] : before.leaves()) EXPECT_TRUE(params->tree()[path].is_same(leaf)) << path;
  EXPECT_EQ(snapshot.changes_to(Snapshot(*params.ptr())), "");
}

void leaves_that_do_not_fit_are_refused() {
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

void to_module_replaces_its_leaves() {
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

void a_tree_reaches_it_inside_a_parent() {
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

void gradients_pass_through_a_parent() {
  Model model(make_tree());
  const Tensor x = torch::randn({4, 3});
  const auto loss = [&](const TensorDict& leaves) { return functional_call(model, leaves, x).square().sum(); };
  const TensorDict gradients = grad(loss)(from_module(*model, State::kParameters));
  model->forward(x).square().sum().backward();
  for (const auto& [path, gradient] : gradients.leaves()) {
    EXPECT_TRUE(gradient.allclose(model->named_parameters()[path].grad(), 1e-4, 1e-5)) << path;
  }
}

}  // namespace

std::vector<std::string> ids() { return series({{"A", 13}, {"D", 5}}); }

std::vector<Row> rows() {
  return {
      {"A1", kBetter,
       "the tree's tensors are registered as they are: floating and complex ones as parameters, others as buffers; "
       "Python changes the tree, and makes buffers of bfloat16 and complex ones",
       [] {
         types_decide_what_is_a_parameter();
         tensors_are_shared_and_keep_their_flags();
       }},
      {"A2", kBetter, "names are dotted, a tied parameter has both, and an optimiser gets it once",
       [] {
         names_are_those_of_the_tree();
         an_optimiser_gets_a_tied_parameter_once();
       }},
      {"A3", kNoMeaning, "trees are not locked"},
      {"A4", kBetter, "to_module replaces leaves, and both tree and parameters show it; in Python one may not",
       to_module_replaces_its_leaves},
      {"A5", kSame, "changes in place are seen, and the tensors stay", changes_in_place_are_seen},
      {"A6", kSame, "what is computed from its tree is a tree; a clone is a TensorDictParams",
       what_is_computed_from_its_tree_is_a_tree},
      {"A7", kSame, "a clone, also of a parent, has tensors of its own and keeps ties",
       [] {
         a_clone_has_tensors_of_its_own();
         a_clone_keeps_ties();
         a_parent_clones_it();
       }},
      {"A8", kSame, "a cast is in place; a clone to a device leaves the original",
       [] {
         a_cast_is_in_place();
         a_clone_to_a_device_leaves_the_original();
       }},
      {"A9", kNoMeaning, "its tree is a plain one, which every function takes"},
      {"A10", kBetter, "loading other keys lists every leaf, also of another shape or dtype, and changes nothing",
       loading_other_keys_lists_them_all},
      {"A11", kNoMeaning, "reading runs no hooks; map its tree"},
      {"A12", kBetter, "a swap of its tree leaves it alone, and is seen in place; Python's list of buffers goes stale",
       [] {
         its_tree_is_swapped_into_a_module();
         a_buffer_reassigned_in_a_swap_leaves_it_alone();
       }},
      {"A13", kBetter, "it is a module and no tree: functions take its tree(), see F8; in Python it is one leaf",
       it_is_no_tree_itself},
      {"D1", kBetter, "a guard shows its leaves and keeps the others; in Python these vanish, and parameters stay old",
       [] {
         a_guard_shows_its_leaves_and_keeps_the_others();
         leaves_that_do_not_fit_are_refused();
       }},
      {"D2", kSame, "after it the very leaves are back", a_guard_shows_its_leaves_and_keeps_the_others},
      {"D3", kSame, "to_module replaces leaves for good, and what is registered follows",
       to_module_replaces_its_leaves},
      {"D4", kBetter, "a tree reaches it inside a parent and stays a tree; Python changes it",
       [] {
         a_tree_reaches_it_inside_a_parent();
         gradients_pass_through_a_parent();
       }},
      {"D5", kNoMeaning, "a TensorDict is no module; set replaces its leaves"},
  };
}

}  // namespace graft::testing
