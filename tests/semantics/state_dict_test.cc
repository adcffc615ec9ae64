// T: shared modules and tied parameters. B: buffers. S: use_state_dict. R: classes with a way of their own.
#include "functional/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/load_hooks.h"
#include "tensordict/copy.h"
#include "tensordict/like.h"
#include "tests/semantics/modules.h"
#include "tests/semantics/table.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

using torch::Tensor;

/// Saves its scale as a logarithm, and says nothing of where it keeps it.
struct UnknownLogScaleImpl : torch::nn::Module {
  UnknownLogScaleImpl() { scale = register_parameter("scale", torch::ones({2})); }
  Tensor forward(const Tensor& x) { return x * scale; }
  void save(torch::serialize::OutputArchive& archive) const override { archive.write("log_scale", scale.log()); }
  void load(torch::serialize::InputArchive& archive) override {
    Tensor log_scale;
    archive.read("log_scale", log_scale);
    const torch::NoGradGuard no_grad;
    scale.copy_(log_scale.exp());
    ++loads;
  }
  Tensor scale;
  int loads = 0;
};
TORCH_MODULE(UnknownLogScale);

/// The same, annotated.
struct LogScaleImpl : UnknownLogScaleImpl {};
TORCH_MODULE(LogScale);

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::LogScaleImpl, scale)

namespace graft::testing {

using enum Verdict;
using torch::nn::Linear;

namespace {

// --- T

void a_shared_module_has_both_names() {
  Shared shared;
  const TensorDict state = from_module(*shared);
  EXPECT_EQ(state.size(), 4);
  EXPECT_TRUE(state.at("first.weight").is_same(state.at("second.weight")));
}

void two_leaves_for_a_shared_module_are_refused() {
  Shared shared;
  const Snapshot before(*shared);
  const TensorDict tree({{"first.weight", torch::ones({2, 2})}, {"second.weight", torch::zeros({2, 2})}});
  for (const bool return_swap : {true, false}) {
    EXPECT_THAT([&] { to_module(tree, *shared, {.return_swap = return_swap}); },
                ThrowsWith<c10::ValueError>("\"first.weight\" and \"second.weight\" stand for one parameter"));
  }
  EXPECT_EQ(before.changes_to(Snapshot(*shared)), "");
}

void the_swap_of_a_shared_module_has_both_names() {
  Shared shared;
  const TensorDict held = from_module(*shared);
  const Tensor leaf = torch::zeros({2, 2});
  const auto old = to_module(TensorDict({{"first.weight", leaf}, {"second.weight", leaf}}), *shared);
  EXPECT_TRUE(old->at("first.weight").is_same(held.at("first.weight")));
  EXPECT_TRUE(old->at("second.weight").is_same(held.at("first.weight")));
}

void the_tree_of_a_shared_module_stays() {
  Shared shared;
  const Tensor leaf = torch::zeros({2, 2});
  const TensorDict tree({{"first.weight", leaf}, {"second.weight", leaf}});
  {
    const ToModuleGuard guard(tree, *shared);
    shared->first->weight = torch::ones({2, 2});
  }
  EXPECT_TRUE(tree.at("first.weight").is_same(leaf));
  EXPECT_TRUE(tree.at("second.weight").is_same(leaf));
}

void one_name_of_a_shared_module_is_enough() {
  Shared shared;
  const Snapshot before(*shared);
  {
    const ToModuleGuard guard(TensorDict({{"second.bias", torch::full({2}, 9.)}}), *shared);
    EXPECT_EQ(shared->first->bias[0].item<float>(), 9);
  }
  EXPECT_EQ(before.changes_to(Snapshot(*shared)), "");
}

void tied_names_follow_their_own_leaves() {
  Twice twice;
  const TensorDict tree({{"v", torch::full({2}, 3.)}, {"w", torch::full({2}, 5.)}});
  const ToModuleGuard guard(tree, *twice);
  EXPECT_TRUE(twice->forward(torch::ones({2})).equal(torch::full({2}, 8.)));
}

void one_leaf_under_two_names_stays_one_parameter() {
  Twice twice;
  for (const Tensor& leaf : {torch::full({2}, 3.), torch::full({2}, 3.).requires_grad_()}) {
    const ToModuleGuard guard(TensorDict({{"v", leaf}, {"w", leaf}}), *twice);
    EXPECT_TRUE(twice->v.is_same(twice->w));
  }
}

void a_tied_name_without_leaf_stays_in_to_module_and_follows_in_functional_call() {
  Twice twice;
  const TensorDict tree({{"v", torch::full({2}, 3.)}});
  {
    const ToModuleGuard guard(tree, *twice);
    EXPECT_TRUE(twice->forward(torch::ones({2})).equal(torch::full({2}, 4.)));
  }
  EXPECT_TRUE(functional_call(twice, tree, torch::ones({2})).equal(torch::full({2}, 6.)));
}

void ties_are_restored_by_identity() {
  Twice twice;
  const Snapshot before(*twice);
  {
    const ToModuleGuard guard(TensorDict({{"v", torch::zeros({2})}, {"w", torch::ones({2})}}), *twice);
    EXPECT_FALSE(twice->v.is_same(twice->w));
  }
  EXPECT_EQ(before.changes_to(Snapshot(*twice)), "");
}

void from_modules_keeps_ties() {
  const std::vector<Twice> nets(2);
  const TensorDict state = from_modules(nets), params = stack_module_state(nets).params;
  EXPECT_TRUE(state.at("v").is_same(state.at("w")));
  EXPECT_TRUE(params.at("v").is_same(params.at("w")));
}

void a_module_in_itself_is_refused() {
  struct LoopImpl : torch::nn::Module {
    void close(const std::shared_ptr<torch::nn::Module>& self) { register_module("self", self); }
  };
  const auto loop = std::make_shared<LoopImpl>();
  loop->close(loop);
  EXPECT_THAT([&] { from_module(*loop); }, ThrowsWith<c10::ValueError>("contains itself"));
  loop->unregister_module("self");
}

// --- B

void batch_norm_in_train_mode_moves_the_leaves() {
  Net net;
  const TensorDict tree = numbered_leaves(*net);
  const Tensor mean = tree.at("norm.running_mean");
  const Tensor before = mean.clone();
  const Tensor own = net->norm->running_mean.clone();
  {
    const ToModuleGuard guard(tree, *net);
    net->forward(torch::randn({5, 3}));
  }
  EXPECT_TRUE(tree.at("norm.running_mean").is_same(mean));
  EXPECT_FALSE(mean.equal(before));
  EXPECT_TRUE(net->norm->running_mean.equal(own));
}

void buffers_without_leaf_are_the_modules_own() {
  Net net;
  const Tensor own = net->norm->running_mean.clone();
  {
    const ToModuleGuard guard(from_module(*net, State::kParameters), *net);
    net->forward(torch::randn({5, 3}));
  }
  EXPECT_FALSE(net->norm->running_mean.equal(own));
}

void a_reassigned_buffer_is_read_from_the_guard() {
  Counter counter;
  const Tensor own = counter->count;
  const TensorDict tree({{"count", torch::full({}, 5.)}});
  {
    const ToModuleGuard guard(tree, *counter);
    counter->forward();
    EXPECT_EQ(guard.current().at("count").item<float>(), 6);
  }
  EXPECT_TRUE(counter->count.is_same(own));
  EXPECT_EQ(tree.at("count").item<float>(), 5);
}

void each_member_moves_its_own_statistics() {
  Net first, second;
  const std::vector<Net> nets{first, second};
  auto [params, buffers] = stack_module_state(nets);
  const Tensor x = torch::randn({2, 5, 3});
  const TensorDict before = clone(buffers);
  const auto forward = [&](const TensorDict& p, const TensorDict& b, const Tensor& input) {
    return functional_call(first, {p, b}, input);
  };
  vmap(forward)(params, buffers, x);
  first->forward(x[0]);
  second->forward(x[1]);
  EXPECT_TRUE(buffers.at("norm.running_mean")[0].allclose(first->norm->running_mean));
  EXPECT_TRUE(buffers.at("norm.running_mean")[1].allclose(second->norm->running_mean));
  EXPECT_FALSE(buffers.at("norm.running_mean").allclose(before.at("norm.running_mean")));
}

void shared_statistics_cannot_move_under_vmap() {
  Net net;
  const auto forward = [&](const Tensor& x) { return functional_call(net, from_module(*net), x); };
  EXPECT_ANY_THROW(vmap(forward)(torch::randn({2, 5, 3})));
  net->eval();
  EXPECT_EQ(vmap(forward)(torch::randn({2, 5, 3})).sizes(), torch::IntArrayRef({2, 5, 2}));
}

void expanded_statistics_cannot_move() {
  Net net;
  const TensorDict expanded = TensorDict({{"norm.running_mean", torch::zeros({4}).expand({2, -1})},
                                          {"norm.running_var", torch::ones({4}).expand({2, -1})},
                                          {"norm.num_batches_tracked", torch::zeros({}, torch::kLong).expand({2})}},
                                         {2});
  const auto forward = [&](const TensorDict& buffers, const Tensor& x) { return functional_call(net, buffers, x); };
  EXPECT_ANY_THROW(vmap(forward)(expanded, torch::randn({2, 5, 3})));
}

void statistics_in_place_are_put_back() {
  Net net;
  const Tensor own = net->norm->running_mean.clone();
  {
    const ToModuleGuard guard(numbered_leaves(*net), *net, {.inplace = true});
    net->forward(torch::randn({5, 3}));
  }
  EXPECT_TRUE(net->norm->running_mean.equal(own));
}

void removed_statistics_are_names_that_hold_nothing() {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(4).track_running_stats(false));
  torch::nn::BatchNorm1d tracked(4);
  const Snapshot before(*norm);
  {
    const TensorDict mean({{"running_mean", torch::ones({4})}, {"running_var", torch::ones({4})}});
    const ToModuleGuard guard(mean, *norm);
  }
  EXPECT_EQ(before.changes_to(Snapshot(*norm)), "");
}

// --- S

const ToModuleOptions kStateDict{.use_state_dict = true};

/// A LogScale in a larger module.
struct ScaledImpl : torch::nn::Module {
  ScaledImpl() {
    linear = register_module("linear", Linear(2, 2));
    scaled = register_module("scaled", LogScale());
  }
  Linear linear = nullptr;
  LogScale scaled = nullptr;
};
TORCH_MODULE(Scaled);

void inplace_is_refused() {
  Net net;
  const Snapshot before(*net);
  EXPECT_THAT([&] { to_module(numbered_leaves(*net), *net, {.inplace = true, .use_state_dict = true}); },
              ThrowsWith<c10::ValueError>("inplace cannot be combined with use_state_dict"));
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

void load_runs_once_on_the_way_in() {
  Scaled module;
  const Snapshot before(*module);
  {
    const ToModuleGuard guard(TensorDict({{"scaled.log_scale", torch::zeros({2}) + std::log(3.)}}), *module,
                              kStateDict);
    EXPECT_TRUE(module->scaled->forward(torch::ones({2})).allclose(torch::full({2}, 3.)));
    EXPECT_EQ(module->scaled->loads, 1);
  }
  EXPECT_EQ(module->scaled->loads, 1);
  EXPECT_EQ(before.changes_to(Snapshot(*module)), "");
}

void load_into_an_unknown_class_leaves_it_as_it_was() {
  UnknownLogScale module;
  const Tensor held = module->scale;
  const void* const storage = held.data_ptr();
  to_module(TensorDict({{"log_scale", torch::zeros({2}) + std::log(3.)}}), *module, kStateDict);
  EXPECT_TRUE(module->scale.is_same(held));
  EXPECT_TRUE(module->scale.allclose(torch::full({2}, 3.)));
  EXPECT_NE(module->scale.data_ptr(), storage);
  EXPECT_THAT(
      [&] {
        ToModuleGuard guard(TensorDict({{"log_scale", torch::zeros({2})}}), *module, kStateDict);
      },
      ThrowsWith<c10::ValueError>("GRAFT_SLOTS"));
  EXPECT_TRUE(module->scale.allclose(torch::full({2}, 3.)));
}

void hooks_see_the_tree_and_their_prefix_once() {
  Net net;
  std::vector<std::string> calls;
  const auto hook = [&](TensorDict& state, const std::string& prefix) {
    calls.push_back(prefix);
    for (const auto& [path, leaf] : TensorDict(state).leaves()) {
      if (path.starts_with(prefix) && leaf.is_floating_point()) state.set(path, leaf * 2);
    }
  };
  register_load_hook(net.ptr(), hook);
  register_load_hook(net->fc1.ptr(), hook);
  const ToModuleGuard guard(ones_like(from_module(*net)), *net, kStateDict);
  EXPECT_EQ(calls, std::vector<std::string>({"", "fc1."}));
  EXPECT_EQ(net->fc1->weight[0][0].item<float>(), 4);  // the root's hook and its own
  EXPECT_EQ(net->fc2->weight[0][0].item<float>(), 2);
}

void a_hook_may_drop_a_name() {
  Net net;
  const Tensor bias = net->fc1->bias;
  register_load_hook(net.ptr(), [](TensorDict& state, const std::string&) { state.erase("fc1.bias"); });
  const ToModuleGuard guard(ones_like(from_module(*net)), *net, kStateDict);
  EXPECT_TRUE(net->fc1->bias.equal(bias));
  EXPECT_EQ(net->fc1->weight[0][0].item<float>(), 1);
}

void a_hook_may_rename() {
  Linear linear(3, 4);
  const LoadHookHandle handle = register_load_hook(linear.ptr(), [](TensorDict& state, const std::string& prefix) {
    state.set(prefix + "weight", state.at(prefix + "w"));
    state.erase(prefix + "w");
  });
  const TensorDict old_format({{"w", torch::ones({4, 3})}});
  {
    const ToModuleGuard guard(old_format, *linear, kStateDict);
    EXPECT_TRUE(linear->weight.equal(torch::ones({4, 3})));
  }
  handle.remove();
  EXPECT_THAT([&] { to_module(old_format, *linear, kStateDict); }, ThrowsWith<c10::IndexError>("\"w\""));
}

void flags_are_the_modules_and_the_tree_stays() {
  Linear linear(3, 4);
  const TensorDict tree = numbered_leaves_with_grad(*linear);
  const Tensor leaf = tree.at("weight");
  {
    const ToModuleGuard guard(tree, *linear, kStateDict);
    EXPECT_TRUE(linear->weight.requires_grad());
    EXPECT_FALSE(is_alias(linear->weight, leaf));
  }
  EXPECT_TRUE(tree.at("weight").is_same(leaf));
}

void the_exit_runs_no_hook() {
  Linear linear(3, 4);
  const Snapshot before(*linear);
  int calls = 0;
  register_load_hook(linear.ptr(), [&](TensorDict&, const std::string&) { ++calls; });
  { const ToModuleGuard guard(numbered_leaves(*linear), *linear, kStateDict); }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(before.changes_to(Snapshot(*linear)), "");
}

void a_failing_hook_or_load_changes_nothing() {
  Scaled module;
  const Snapshot before(*module);
  EXPECT_ANY_THROW(to_module(TensorDict({{"scaled.log_scale", torch::zeros({3})}}), *module, kStateDict));
  register_load_hook(module.ptr(), [](TensorDict&, const std::string&) { throw std::runtime_error("hook"); });
  EXPECT_THROW(to_module(TensorDict(), *module, kStateDict), std::runtime_error);
  EXPECT_EQ(before.changes_to(Snapshot(*module)), "");
}

void what_a_module_saves_is_its_state_dict() {
  Scaled module;
  const TensorDict state = state_dict(*module);
  EXPECT_TRUE(state.at("scaled.log_scale").equal(torch::zeros({2})));
  EXPECT_FALSE(state.contains("scaled.scale"));
  EXPECT_TRUE(state.at("linear.weight").equal(module->linear->weight));
  EXPECT_FALSE(state.at("linear.weight").requires_grad());
  Net net;
  EXPECT_THAT(state_dict(*net), TensorDictEq(detach(from_module(*net))));
  const ToModuleGuard guard(state, *module, kStateDict);
  EXPECT_TRUE(module->scaled->scale.equal(torch::ones({2})));
}

// --- R

void an_rnn_is_swapped_as_any_module() {
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 4)), other(torch::nn::GRUOptions(3, 4));
  const Tensor x = torch::randn({2, 1, 3});
  const Snapshot before(*gru);
  {
    const ToModuleGuard guard(from_module(*other), *gru);
    EXPECT_TRUE(std::get<0>(gru->forward(x)).equal(std::get<0>(other->forward(x))));
  }
  EXPECT_EQ(before.changes_to(Snapshot(*gru)), "");
}

void an_unknown_name_of_an_rnn_is_the_same_error() {
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 4));
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"weight_x", torch::ones({2})}}), *gru);
      },
      ThrowsWith<c10::IndexError>("\"weight_x\"", "weight_ih_l0"));
}

void a_plain_leaf_stays_registered() {
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 4));
  const TensorDict tree = numbered_leaves(*gru);
  {
    const ToModuleGuard guard(tree, *gru, {.preserve_module_state = false});
    EXPECT_EQ(gru->named_parameters().size(), 4);
    EXPECT_TRUE(gru->named_parameters()["weight_ih_l0"].is_same(tree.at("weight_ih_l0")));
  }
  EXPECT_EQ(gru->named_parameters().size(), 4);
}

void an_unknown_class_shares_the_data_of_plain_leaves() {
  Raw raw;
  const Tensor held = raw->w;
  const Tensor leaf = torch::full({2}, 5.);
  const auto old = to_module(TensorDict({{"w", leaf}}), *raw);
  EXPECT_TRUE(raw->w.is_same(held));
  EXPECT_TRUE(raw->w.requires_grad());
  EXPECT_TRUE(is_alias(raw->w, leaf));
  EXPECT_TRUE(raw->forward(torch::ones({2})).equal(leaf));
  EXPECT_TRUE(old->at("w").equal(torch::ones({2})));
  to_module(*old, *raw);
  EXPECT_TRUE(raw->w.equal(torch::ones({2})));
  const Snapshot before(*raw);
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"w", leaf.clone().requires_grad_()}}), *raw);
      },
      ThrowsWith<c10::ValueError>("\"w\"", "carries derivatives", "GRAFT_SLOTS(graft::testing::RawImpl"));
  EXPECT_THAT(
      [&] {
        ToModuleGuard guard(TensorDict({{"w", leaf}}), *raw);
      },
      ThrowsWith<c10::ValueError>("GRAFT_SLOTS"));
  EXPECT_EQ(before.changes_to(Snapshot(*raw)), "");
}

}  // namespace

std::vector<std::string> ids() { return series({{"T", 15}, {"B", 11}, {"S", 11}, {"R", 6}}); }

std::vector<Row> rows() {
  return {
      {"T1", kSame, "a shared module shows under both names", a_shared_module_has_both_names},
      {"T2", kBetter, "two leaves for it are refused; Python ignores the second",
       two_leaves_for_a_shared_module_are_refused},
      {"T3", kSame, "the swap has both names", the_swap_of_a_shared_module_has_both_names},
      {"T4", kBetter, "the tree stays; Python writes what the body assigned into both entries",
       the_tree_of_a_shared_module_stays},
      {"T5", kSame, "one of its names is enough", one_name_of_a_shared_module_is_enough},
      {"T6", kBetter, "also with return_swap = false; there Python's last value wins",
       two_leaves_for_a_shared_module_are_refused},
      {"T7", kNoMeaning, "nothing here is compiled"},
      {"T8", kSame, "tied names follow their own leaves", tied_names_follow_their_own_leaves},
      {"T9", kBetter, "a plain leaf under two names stays one parameter; Python makes two",
       one_leaf_under_two_names_stays_one_parameter},
      {"T10", kSame, "so does one that requires grad", one_leaf_under_two_names_stays_one_parameter},
      {"T11", kSame, "a tied name without leaf stays, and follows in functional_call",
       a_tied_name_without_leaf_stays_in_to_module_and_follows_in_functional_call},
      {"T12", kSame, "ties are restored by identity, in place too (P9)", ties_are_restored_by_identity},
      {"T13", kNoMeaning, "copying a TensorDict shares its leaves; clone is of values"},
      {"T14", kBetter, "from_modules keeps ties; Python stacks each name by itself", from_modules_keeps_ties},
      {"T15", kBetter, "a module that contains itself is an error; Python's recursion fails",
       a_module_in_itself_is_refused},
      {"B1", kNoMeaning, "LibTorch's buffers are all persistent"},
      {"B2", kSame, "statistics move in the leaves", batch_norm_in_train_mode_moves_the_leaves},
      {"B3", kSame, "without leaves they move in the module", buffers_without_leaf_are_the_modules_own},
      {"B4", kBetter, "a reassigned buffer is in the module, restored after; Python writes it into the tree",
       a_reassigned_buffer_is_read_from_the_guard},
      {"B5", kNoMeaning, "as B1"},
      {"B6", kSame, "under vmap each member moves its own", each_member_moves_its_own_statistics},
      {"B7", kSame, "expanded statistics cannot move", expanded_statistics_cannot_move},
      {"B8", kSame, "shared statistics cannot move under vmap", shared_statistics_cannot_move_under_vmap},
      {"B9", kSame, "in place they are put back", statistics_in_place_are_put_back},
      {"B10", kBetter, "removed statistics are names that hold nothing; Python's exit fails",
       removed_statistics_are_names_that_hold_nothing},
      {"B11", kNoMeaning, "what is a buffer stays one, see the A rows"},
      {"S1", kSame, "inplace is refused", inplace_is_refused},
      {"S2", kBetter, "hooks and the module's own load run; Python runs pre-hooks alone",
       [] {
         load_runs_once_on_the_way_in();
         load_into_an_unknown_class_leaves_it_as_it_was();
       }},
      {"S3", kBetter, "hooks see the whole tree and their true prefix; Python's prefix is always empty",
       hooks_see_the_tree_and_their_prefix_once},
      {"S4", kSame, "a hook may drop a name", a_hook_may_drop_a_name},
      {"S5", kBetter, "a hook may rename; Python fails", a_hook_may_rename},
      {"S6", kBetter, "the tree stays; Python replaces its parameters", flags_are_the_modules_and_the_tree_stays},
      {"S7", kBetter, "the exit runs no hook; Python runs them on the originals", the_exit_runs_no_hook},
      {"S8", kBetter, "the exit restores the very tensors; Python makes new ones", load_runs_once_on_the_way_in},
      {"S9", kBetter, "a hook or load that fails changes nothing", a_failing_hook_or_load_changes_nothing},
      {"S10", kBetter, "what a module saves can be read too", what_a_module_saves_is_its_state_dict},
      {"S11", kNoMeaning, "a cost, not a behaviour; see the benchmark"},
      {"R1", kSame, "no class has a way of its own: an RNN is swapped as any module", an_rnn_is_swapped_as_any_module},
      {"R2", kBetter, "its flat weights are restored at once; Python's at the next forward",
       an_rnn_is_swapped_as_any_module},
      {"R3", kBetter, "an unknown name is the same error as elsewhere", an_unknown_name_of_an_rnn_is_the_same_error},
      {"R4", kSame, "a plain leaf stays registered, here for every class", a_plain_leaf_stays_registered},
      {"R5", kBetter, "a class that says nothing shares the data of plain leaves, or gets values in place (P12)",
       an_unknown_class_shares_the_data_of_plain_leaves},
      {"R6", kSame, "the module has its parameters after", a_plain_leaf_stays_registered},
  };
}

}  // namespace graft::testing
