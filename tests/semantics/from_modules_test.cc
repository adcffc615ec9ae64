// M: the tree of one module. Q: the tree of several.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/state_dict.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tensordict/copy.h"
#include "tensordict/join.h"
#include "tests/semantics/modules.h"
#include "tests/semantics/table.h"
#include "tests/testing/nets.h"
#include "tests/testing/params_model.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

using enum Verdict;
using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;
using torch::nn::Tanh;

namespace {

/// Gives the module leaves without data. (LibTorch's modules cannot be moved there.)
void move_to_meta(torch::nn::Module& module) {
  to_module(from_module(module).map([](const Tensor& leaf) { return leaf.detach().to(torch::kMeta); }), module);
}

std::vector<std::string> paths_of(const TensorDict& tree) {
  std::vector<std::string> paths;
  for (const auto& [path, leaf] : tree.leaves()) paths.push_back(path);
  return paths;
}

// --- M

void the_order_is_that_of_registration() {
  Net net;
  const TensorDict tree = from_module(*net);
  EXPECT_EQ(paths_of(tree),
            (std::vector<std::string>{"fc1.weight", "fc1.bias", "norm.weight", "norm.bias", "norm.running_mean",
                                      "norm.running_var", "norm.num_batches_tracked", "fc2.weight"}));
  EXPECT_TRUE(tree["norm.running_var"].is_same(net->norm->running_var));
  EXPECT_TRUE(tree["fc1.weight"].is_same(net->fc1->weight));
  EXPECT_TRUE(tree.batch_size().empty());
}

void modules_without_state_are_left_out() {
  EXPECT_EQ(paths_of(state_of(Sequential(Tanh(), Linear(2, 2)))), (std::vector<std::string>{"1.weight", "1.bias"}));
  EXPECT_TRUE(state_of(Tanh()).empty());
  const TensorDictParams params(TensorDict(std::vector<int64_t>{3}));
  EXPECT_TRUE(params->tree().empty());
  EXPECT_EQ(params->tree().batch_size(), std::vector<int64_t>{3});
}

void a_tensordict_params_shares_all_tensors() {
  Sequential net(Linear(3, 2), BatchNorm1d(2));
  const TensorDictParams params(from_module(*net, State::kParameters), from_module(*net, State::kBuffers));
  EXPECT_EQ(params->named_parameters().keys(), net->named_parameters().keys());
  EXPECT_EQ(params->named_buffers().keys(), net->named_buffers().keys());
  const TensorDict tree = params->tree(), own = from_module(*net);
  EXPECT_EQ(tree.size(), own.size());
  for (const auto& [path, leaf] : own.leaves()) EXPECT_TRUE(tree[path].is_same(leaf)) << path;
}

void what_a_module_saves_is_read_too() {
  Net net;
  const TensorDict state = state_dict(*net);
  EXPECT_THAT(state, TensorDictEq(detach(from_module(*net))));
  for (const auto& [path, leaf] : state.leaves()) EXPECT_FALSE(leaf.requires_grad()) << path;
}

void a_tensordict_params_is_read_as_any_module() {
  Model model(make_tree());
  for (const auto& [path, leaf] : model->params->tree().leaves()) {
    EXPECT_TRUE(from_module(*model->params.ptr())[path].is_same(leaf)) << path;
    EXPECT_TRUE(from_module(*model)["params." + path].is_same(leaf)) << path;
  }
}

void any_name_is_taken() {
  struct Module : torch::nn::Module {
    Module() {
      register_parameter("keys", torch::zeros({2}));
      register_buffer("size", torch::zeros({2}));
    }
  };
  const std::vector<std::shared_ptr<Module>> modules{std::make_shared<Module>(), std::make_shared<Module>()};
  EXPECT_EQ(paths_of(from_modules(modules)), (std::vector<std::string>{"keys", "size"}));
}

// --- Q

void an_empty_list_is_refused() {
  EXPECT_THAT([] { from_modules(std::vector<Linear>{}); }, ThrowsWith<c10::ValueError>("from_modules", "at least one"));
}

void leaves_are_stacked_in_the_order_of_the_module() {
  const auto nets = make_nets(3);
  const TensorDict state = from_modules(nets);
  EXPECT_EQ(state.batch_size(), std::vector<int64_t>{3});
  EXPECT_EQ(state.subtree("1").batch_size(), std::vector<int64_t>{3});
  EXPECT_EQ(paths_of(state), paths_of(state_of(nets[0])));
  for (int i = 0; i < 3; ++i) {
    for (const auto& [path, leaf] : state_of(nets[i]).leaves()) EXPECT_TRUE(state[path][i].equal(leaf)) << path;
  }
  EXPECT_EQ(state["1.num_batches_tracked"].scalar_type(), torch::kLong);
}

void leaves_are_fresh_and_keep_the_flags() {
  auto nets = make_nets(2);
  for (Sequential& net : nets) net[0]->as<Linear>()->bias.set_requires_grad(false);
  const TensorDict state = from_modules(nets);
  for (const auto& [path, leaf] : state.leaves()) {
    EXPECT_TRUE(leaf.is_leaf()) << path;
    EXPECT_EQ(leaf.requires_grad(), state_of(nets[0])[path].requires_grad()) << path;
  }
  state["0.weight"].sum().backward();
  EXPECT_TRUE(state["0.weight"].grad().equal(torch::ones({2, 4, 3})));
  EXPECT_FALSE(nets[0][0]->as<Linear>()->weight.grad().defined());
}

void other_names_and_shapes_are_listed() {
  const std::vector<Linear> nets{Linear(2, 2), Linear(3, 4), Linear(LinearOptions(2, 2).bias(false))};
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>("from_modules: the modules differ",
                                          "module 1:", "\"weight\": shape [4, 3], expected [2, 2]",
                                          "\"bias\": shape [4], expected [2]", "module 2:", "\"bias\": missing"));
  const std::vector<Linear> other_first{nets[2], nets[0]};
  EXPECT_THAT([&] { from_modules(other_first); }, ThrowsWith<c10::ValueError>("module 1:", "\"bias\": unexpected"));
}

void other_dtypes_and_devices_are_refused() {
  const std::vector<Linear> nets{Linear(2, 2), Linear(2, 2), Linear(2, 2)};
  Linear(nets[1])->to(torch::kDouble);
  move_to_meta(*nets[2].ptr());
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>("module 1:\n  \"weight\": dtype double, expected float", "\"bias\": dtype",
                                          "module 2:\n  \"weight\": device meta, expected cpu", "\"bias\": device"));
}

void other_flags_modes_and_classes_are_refused() {
  std::vector<std::shared_ptr<torch::nn::Module>> nets{
      Sequential(Linear(2, 2), Tanh()).ptr(), Sequential(Linear(2, 2), torch::nn::ReLU()).ptr(),
      Sequential(Linear(2, 2), Tanh()).ptr(), Sequential(Linear(2, 2), Tanh()).ptr(), Linear(2, 2).ptr()};
  nets[2]->children()[1]->eval();
  nets[3]->eval();
  nets[3]->children()[0]->parameters()[1].set_requires_grad(false);
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>(
                  "sub-module \"1\" of module 1 is a torch::nn::ReLUImpl, sub-module \"1\" of module 0 is a "
                  "torch::nn::TanhImpl",
                  "sub-module \"1\" of module 2 is in eval mode, sub-module \"1\" of module 0 is in train mode",
                  "module 3 is in eval mode, module 0 is in train mode",
                  "module 3:\n  \"0.bias\": requires_grad false, expected true", "module 4 is a torch::nn::LinearImpl",
                  "module 4 has no sub-module \"1\", module 0 has one", "\"weight\": unexpected"));
}

void identical_leaves_are_expanded() {
  Linear shared(2, 2);
  const std::vector<Sequential> nets{Sequential(shared, Linear(2, 2)), Sequential(shared, Linear(2, 2))};
  const TensorDict state = from_modules(nets, {.expand_identical = true});
  EXPECT_EQ(state["0.weight"].sizes(), (std::vector<int64_t>{2, 2, 2}));
  EXPECT_EQ(state["0.weight"].stride(0), 0);
  EXPECT_EQ(state["0.weight"].data_ptr(), shared->weight.data_ptr());
  EXPECT_TRUE(state["1.weight"].is_leaf());

  const auto forward = [&](const TensorDict& leaves, const Tensor& x) { return functional_call(nets[0], leaves, x); };
  const Tensor x = torch::randn({5, 2});
  vmap(forward, {.in_dims = {0, std::nullopt}})(state, x).sum().backward();
  const Tensor gradient = shared->weight.grad().clone();
  shared->zero_grad();
  for (const Sequential& net : nets) Sequential(net)->forward(x).sum().backward();
  EXPECT_TRUE(gradient.allclose(shared->weight.grad()));
}

void identical_leaves_are_copied_unless_told() {
  const Linear shared(2, 2);
  const TensorDict state = from_modules(std::vector<Linear>{shared, shared});
  EXPECT_TRUE(state["weight"].is_contiguous() && state["weight"].is_leaf());
  EXPECT_FALSE(state["weight"].is_alias_of(shared->weight));
}

void identical_buffers_are_expanded() {
  const BatchNorm1d shared(2);
  const TensorDict state = from_modules(std::vector<BatchNorm1d>{shared, shared}, {.expand_identical = true});
  EXPECT_TRUE(state["running_mean"].is_alias_of(shared->running_mean));
  EXPECT_EQ(state["num_batches_tracked"].sizes(), std::vector<int64_t>{2});
  EXPECT_EQ(state["num_batches_tracked"].scalar_type(), torch::kLong);
}

void a_stack_of_trees_gives_gradients_to_the_modules() {
  const std::vector<Linear> nets{Linear(2, 2), Linear(2, 2)};
  const TensorDict state = stack({state_of(nets[0]), state_of(nets[1])});
  (state["weight"] * torch::arange(1, 3).view({2, 1, 1})).sum().backward();
  EXPECT_TRUE(nets[0]->weight.grad().equal(torch::full({2, 2}, 1.)));
  EXPECT_TRUE(nets[1]->weight.grad().equal(torch::full({2, 2}, 2.)));
}

void a_swap_outside_vmap_is_refused() {
  const std::vector<Linear> nets{Linear(3, 2), Linear(3, 2)};
  const TensorDict before = state_of(nets[0]);
  EXPECT_THAT([&] { ToModuleGuard guard(from_modules(nets), *nets[0].ptr()); },
              ThrowsWith<c10::ValueError>("\"weight\": shape [2, 2, 3], expected [2, 3]"));
  EXPECT_TRUE(nets[0]->weight.is_same(before["weight"]));
}

void modules_without_state_give_an_empty_tree() {
  const TensorDict state = from_modules(std::vector<Tanh>(3));
  EXPECT_TRUE(state.empty());
  EXPECT_EQ(state.batch_size(), std::vector<int64_t>{3});
  const std::vector<Sequential> nets{Sequential(Linear(2, 2), Tanh()), Sequential(Linear(2, 2), Tanh())};
  EXPECT_EQ(paths_of(from_modules(nets)), (std::vector<std::string>{"0.weight", "0.bias"}));
}

void meta_modules_are_stacked() {
  const auto nets = make_nets(2);
  for (const Sequential& net : nets) move_to_meta(*net.ptr());
  const TensorDict state = from_modules(nets);
  EXPECT_TRUE(state["0.weight"].is_meta());
  EXPECT_EQ(state["0.weight"].sizes(), (std::vector<int64_t>{2, 4, 3}));
}

void members_are_written_back() {
  const auto from = make_nets(3), to = make_nets(3);
  const Tensor own = state_of(to[1])["0.weight"];
  unstack_module_state(from_modules(from), to);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(state_of(to[i]), TensorDictEq(state_of(from[i])));
  EXPECT_TRUE(state_of(to[1])["0.weight"].is_same(own));
  EXPECT_THAT([&] { unstack_module_state(from_modules(from), make_nets(2)); },
              ThrowsWith<c10::ValueError>("batch size [3], expected [2]"));
}

void saved_states_are_stacked() {
  const auto nets = make_nets(2);
  const TensorDict state = stack({state_dict(*nets[0].ptr()), state_dict(*nets[1].ptr())});
  EXPECT_THAT(state, TensorDictEq(detach(from_modules(nets))));
  for (const auto& [path, leaf] : state.leaves()) EXPECT_FALSE(leaf.requires_grad()) << path;
}

void gradients_of_a_member_are_scattered() {
  const std::vector<Linear> nets{Linear(2, 2), Linear(2, 2)};
  const TensorDict state = from_modules(nets);
  const TensorDict member = unbind(state)[1];
  functional_call(nets[0], member, torch::ones({1, 2})).sum().backward();
  EXPECT_TRUE(state["weight"].grad()[0].equal(torch::zeros({2, 2})));
  EXPECT_TRUE(state["weight"].grad()[1].equal(torch::ones({2, 2})));
}

}  // namespace

std::vector<std::string> ids() { return series({{"M", 9}, {"Q", 12}}); }

std::vector<Row> rows() {
  return {
      {"M1", kNoMeaning, "trees are not locked"},
      {"M2", kSame, "the module's own tensors, in the order of registration", the_order_is_that_of_registration},
      {"M3", kBetter,
       "modules without state are left out, and an empty TensorDictParams is one; Python makes a plain tree of it",
       modules_without_state_are_left_out},
      {"M4", kBetter, "a TensorDictParams of parameters and buffers shares them; Python makes new buffers",
       a_tensordict_params_shares_all_tensors},
      {"M5", kSame, "state_dict reads what a module saves, without grad; see the S rows",
       what_a_module_saves_is_read_too},
      {"M6", kSame, "a TensorDictParams is read as it is, alone and inside a module",
       a_tensordict_params_is_read_as_any_module},
      {"M7", kSame, "any name is taken", any_name_is_taken},
      {"M8", kNoMeaning, "LibTorch has no parametrisations"},
      {"M9", kNoMeaning, "what is no module does not compile"},
      {"Q1", kSame, "an empty list is refused", an_empty_list_is_refused},
      {"Q2", kBetter, "fresh leaves, each with its flag in the modules, which must agree; Python takes the first's",
       [] {
         leaves_are_stacked_in_the_order_of_the_module();
         leaves_are_fresh_and_keep_the_flags();
       }},
      {"Q3", kBetter, "other names and shapes are all listed; Python stops at the first",
       other_names_and_shapes_are_listed},
      {"Q4", kBetter, "other dtypes and devices are refused; Python promotes dtypes without a word",
       other_dtypes_and_devices_are_refused},
      {"Q5", kBetter, "other flags, modes and classes are refused; Python does not look",
       other_flags_modes_and_classes_are_refused},
      {"Q6", kSame, "expand_identical shares what is one tensor in all modules",
       [] {
         identical_leaves_are_expanded();
         identical_buffers_are_expanded();
         identical_leaves_are_copied_unless_told();
       }},
      {"Q7", kSame, "no lazy stacks; a stack of the trees gives gradients to the modules as they do",
       a_stack_of_trees_gives_gradients_to_the_modules},
      {"Q8", kBetter, "a swap outside vmap is refused; Python's ends with other leaves in the stack",
       a_swap_outside_vmap_is_refused},
      {"Q9", kSame, "modules without state give an empty tree with batch size, meta modules a meta one",
       [] {
         modules_without_state_give_an_empty_tree();
         meta_modules_are_stacked();
       }},
      {"Q10", kSame, "a stack of state_dict has plain leaves", saved_states_are_stacked},
      {"Q11", kBetter, "unstack_module_state writes the members back; Python has no function for it",
       members_are_written_back},
      {"Q12", kSame, "gradients of a member are scattered into the stack", gradients_of_a_member_are_scattered},
  };
}

}  // namespace graft::testing
