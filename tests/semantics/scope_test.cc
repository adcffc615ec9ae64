// C: what a guard restores, whatever happens in its block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "functional/functional_call.h"
#include "tensordict/copy.h"
#include "tensordict/like.h"
#include "tests/semantics/modules.h"
#include "tests/semantics/table.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft::testing {

using enum Verdict;
using torch::Tensor;
using torch::nn::Linear;

namespace {

/// Runs `body` under a guard and expects module and tree as they were, values of the leaves aside.
void expect_restored_after(const std::function<void(Net&, const TensorDict&)>& body) {
  Net net;
  const TensorDict tree = numbered_leaves(*net);
  const TensorDict leaves = tree;
  const Snapshot before(*net);
  try {
    const ToModuleGuard guard(tree, *net);
    body(net, tree);
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
  ASSERT_EQ(tree.size(), leaves.size());
  for (const auto& [path, leaf] : tree.leaves()) EXPECT_TRUE(leaf.is_same(leaves.at(path))) << path;
}

void nothing_happens() {
  expect_restored_after(
      [](Net& net, const TensorDict& tree) { EXPECT_TRUE(is_alias(net->fc1->bias, tree.at("fc1.bias"))); });
}

void changes_in_place_reach_the_tree() {
  expect_restored_after([](Net& net, const TensorDict& tree) {
    const torch::NoGradGuard no_grad;
    net->fc1->weight.fill_(5);
    EXPECT_TRUE(tree.at("fc1.weight").equal(torch::full({4, 3}, 5.)));
  });
}

void members_are_reassigned() {
  expect_restored_after([](Net& net, const TensorDict&) {
    net->fc1->weight = torch::zeros({4, 3});
    net->fc1->bias = Tensor();
    net->norm->num_batches_tracked = net->norm->num_batches_tracked + 1;
  });
}

/// Lets others unregister.
struct OpenLinearImpl : torch::nn::LinearImpl {
  using torch::nn::LinearImpl::LinearImpl;
  using torch::nn::Module::unregister_module;
  void drop(const std::string& name) { parameters_.erase(name); }
};

void entries_are_unregistered() {
  OpenLinearImpl linear(3, 4);
  const Snapshot before(linear);
  {
    const ToModuleGuard guard(numbered_leaves(linear), linear);
    linear.drop("weight");
  }
  EXPECT_EQ(before.changes_to(Snapshot(linear)), "");
}

/// A module whose part can be exchanged.
struct HolderImpl : torch::nn::Module {
  HolderImpl() { part = register_module("part", Linear(3, 4)); }
  Linear part = nullptr;
};

void a_module_is_replaced() {
  HolderImpl holder;
  Linear first = holder.part;
  Linear second(3, 4);
  const Snapshot first_before(*first), second_before(*second);
  {
    const ToModuleGuard guard(numbered_leaves(holder), holder);
    holder.part = holder.replace_module("part", second);
  }
  EXPECT_EQ(first_before.changes_to(Snapshot(*first)), "");
  EXPECT_EQ(second_before.changes_to(Snapshot(*second)), "");
}

void something_is_registered() {
  HolderImpl holder;
  {
    const ToModuleGuard guard(numbered_leaves(holder), holder);
    holder.register_parameter("more", torch::ones({1}));
  }
  EXPECT_TRUE(holder.named_parameters().contains("more"));
}

void the_tree_changes() {
  Net net;
  TensorDict tree = numbered_leaves(*net);
  const Tensor replacement = torch::zeros({4});
  {
    const ToModuleGuard guard(tree, *net);
    tree.set("fc1.bias", replacement);
    tree.erase("fc2.weight");
  }
  EXPECT_TRUE(tree.at("fc1.bias").is_same(replacement));
  EXPECT_FALSE(tree.contains("fc2.weight"));
}

void the_body_throws() {
  expect_restored_after([](Net&, const TensorDict&) { throw std::runtime_error("body"); });
}

void anything_is_thrown() {
  Net net;
  const Snapshot before(*net);
  try {
    const ToModuleGuard guard(numbered_leaves(*net), *net);
    throw 42;
  } catch (int thrown) {
    EXPECT_EQ(thrown, 42);
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void the_block_is_left_early() {
  Net net;
  const Snapshot before(*net);
  for (int i = 0; i < 2; ++i) {
    const ToModuleGuard guard(numbered_leaves(*net), *net);
    if (i == 0) continue;
    break;
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void the_tree_is_a_temporary() {
  Net net;
  const Snapshot before(*net);
  {
    const ToModuleGuard guard(numbered_leaves(*net), *net);
    EXPECT_EQ(net->fc1->weight[0][0].item<float>(), 0.5);
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void guards_nest() {
  Net net;
  const Snapshot before(*net);
  const TensorDict ones = ones_like(from_module(*net)), zeros = zeros_like(from_module(*net));
  {
    const ToModuleGuard outer(ones, *net);
    const Snapshot inside(*net);
    for (const TensorDict& tree : {zeros, ones}) {
      const ToModuleGuard inner(tree, *net);
      EXPECT_TRUE(is_alias(net->fc1->weight, tree.at("fc1.weight")));
    }
    EXPECT_EQ(inside.changes_to(Snapshot(*net)), "");
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void swap_dest_is_filled() {
  Net net;
  const Snapshot before(*net);
  TensorDict destination({{"extra", torch::ones({1})}});
  {
    const ToModuleGuard guard(numbered_leaves(*net), *net, {.swap_dest = &destination});
    EXPECT_EQ(destination.size(), guard.swapped_out().size() + 1);
    for (const auto& [path, value] : guard.swapped_out().leaves()) EXPECT_TRUE(value.is_same(destination.at(path)));
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
  TensorDict batched({{"extra", torch::ones({9})}}, {9});
  EXPECT_THAT([&] { to_module(numbered_leaves(*net), *net, {.swap_dest = &batched}); },
              ThrowsWith<c10::ValueError>("[9]"));
  EXPECT_EQ(batched.size(), 1);
  EXPECT_THAT([&] { to_module(numbered_leaves(*net), *net, {.return_swap = false, .swap_dest = &destination}); },
              ThrowsWith<c10::ValueError>("swap_dest", "return_swap = false"));
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

/// Swaps itself while it runs.
struct SelfImpl : torch::nn::LinearImpl {
  SelfImpl() : torch::nn::LinearImpl(2, 2) {}
  Tensor twice(const Tensor& x, const TensorDict& tree) {
    const ToModuleGuard guard(tree, *this);
    return forward(x);
  }
};

void a_module_swaps_itself() {
  SelfImpl self;
  const Snapshot before(self);
  EXPECT_TRUE(self.twice(torch::ones({2}), zeros_like(from_module(self))).equal(torch::zeros({2})));
  EXPECT_EQ(before.changes_to(Snapshot(self)), "");
}

void one_tree_is_in_two_modules() {
  Net first, second;
  const TensorDict tree = numbered_leaves(*first);
  const Snapshot first_before(*first), second_before(*second);
  {
    const ToModuleGuard one(tree, *first);
    const ToModuleGuard other(tree, *second);
    EXPECT_TRUE(is_alias(first->fc1->weight, second->fc1->weight));
  }
  EXPECT_EQ(first_before.changes_to(Snapshot(*first)), "");
  EXPECT_EQ(second_before.changes_to(Snapshot(*second)), "");
}

void another_thread_is_refused() {
  Net net;
  const TensorDict tree = numbered_leaves(*net);
  const Snapshot before(*net);
  {
    const ToModuleGuard guard(tree, *net);
    std::thread([&] {
      EXPECT_ANY_THROW(to_module(tree, *net));
      EXPECT_ANY_THROW(functional_call(net, tree, torch::randn({5, 3})));
      EXPECT_ANY_THROW(ToModuleGuard(tree, *net->fc1));
    }).join();
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void the_module_is_cast() {
  Net net;
  const Snapshot before(*net);
  const TensorDict tree = numbered_leaves(*net);
  {
    const ToModuleGuard guard(tree, *net);
    net->to(torch::kDouble);
    EXPECT_EQ(net->fc1->weight.scalar_type(), torch::kDouble);
    EXPECT_EQ(guard.current().at("fc1.weight").scalar_type(), torch::kDouble);
  }
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
  EXPECT_EQ(tree.at("fc1.weight").scalar_type(), torch::kFloat);
}

void an_optimiser_steps() {
  Net net;
  const Snapshot before(*net);
  const TensorDict tree = numbered_leaves(*net);
  const TensorDict values = clone(tree);
  {
    const ToModuleGuard guard(tree, *net);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    net->forward(torch::randn({5, 3})).square().sum().backward();
    optimizer.step();
  }
  EXPECT_FALSE(tree.at("fc2.weight").equal(values.at("fc2.weight")));
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void a_copy_is_made() {
  Linear linear(3, 4);
  std::shared_ptr<torch::nn::Module> copy;
  {
    const ToModuleGuard guard(numbered_leaves(*linear), *linear);
    copy = linear->clone();
  }
  EXPECT_EQ(copy->named_parameters()["weight"][0][0].item<float>(), 0.5);
  EXPECT_NE(linear->weight[0][0].item<float>(), 0.5);
}

}  // namespace

std::vector<std::string> ids() { return series({{"C", 33}}); }

std::vector<Row> rows() {
  return {
      {"C1", kNoMeaning, "a guard remembers what it needs itself"},
      {"C2", kBetter, "the exit puts back what was there and writes nothing into the tree", nothing_happens},
      {"C3", kBetter, "nothing is written back into the tree; guard.current() has it", nothing_happens},
      {"C4", kSame, "changes in place reach the tree, which shares the storage", changes_in_place_reach_the_tree},
      {"C5", kBetter, "what the body assigns is dropped; Python puts it into the tree, even a locked one",
       members_are_reassigned},
      {"C6", kBetter, "emptied members too", members_are_reassigned},
      {"C7", kBetter, "entries that the body unregistered come back; Python fails and restores no later ones",
       entries_are_unregistered},
      {"C8", kBetter,
       "a module that the body replaced gets its own tensors back, the new one is left alone; Python "
       "writes them into the new one",
       a_module_is_replaced},
      {"C9", kSame, "what the body registered stays", something_is_registered},
      {"C10", kBetter, "changes of the tree stay; Python loses them", the_tree_changes},
      {"C11", kBetter, "also leaves erased", the_tree_changes},
      {"C12", kBetter, "the tree keeps its leaves", nothing_happens},
      {"C13", kSame, "an exception restores and passes", the_body_throws},
      {"C14", kBetter, "whatever is thrown; Python replaces some exceptions by one of its own", anything_is_thrown},
      {"C15", kNoMeaning, "no generators; a coroutine that keeps a guard keeps the module swapped"},
      {"C16", kSame, "leaving the block early restores", the_block_is_left_early},
      {"C17", kSame, "the tree may be a temporary", the_tree_is_a_temporary},
      {"C18", kSame, "guards nest", guards_nest},
      {"C19", kSame, "also with one tree twice", guards_nest},
      {"C20", kNoMeaning, "guards are blocks, so they end in reverse order"},
      {"C21", kNoMeaning, "a guard is neither copied nor entered twice"},
      {"C22", kNoMeaning, "as C21"},
      {"C23", kNoMeaning, "as C21"},
      {"C24", kBetter, "swap_dest works with a guard; Python's exit fails", swap_dest_is_filled},
      {"C25", kNoMeaning, "trees are not locked"},
      {"C26", kNoMeaning, "does not compile"},
      {"C27", kNoMeaning, "arguments have no names"},
      {"C28", kSame, "a module may swap itself", a_module_swaps_itself},
      {"C29", kSame, "one tree may be in two modules", one_tree_is_in_two_modules},
      {"C30", kBetter, "another thread's swap of the module is an error; in Python it gets the other's weights",
       another_thread_is_refused},
      {"C31", kBetter, "a cast in the block ends with it; Python casts the tree", the_module_is_cast},
      {"C32", kSame, "an optimiser in the block steps the tree's storage", an_optimiser_steps},
      {"C33", kSame, "a copy made in the block keeps its values", a_copy_is_made},
  };
}

}  // namespace graft::testing
