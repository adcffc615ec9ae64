// N: names that hold nothing. P: values copied in place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/grad.h"
#include "tensordict/copy.h"
#include "tensordict/like.h"
#include "tests/semantics/modules.h"
#include "tests/semantics/table.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {

using enum Verdict;
using torch::Tensor;
using torch::nn::Linear;
using torch::nn::LinearOptions;

namespace {

const ToModuleOptions kInPlace{.inplace = true};

template <typename... Parts>
void expect_refused(const TensorDict& tree, torch::nn::Module& module, const Parts&... parts) {
  const Snapshot before(module);
  EXPECT_THAT([&] { to_module(tree, module, kInPlace); },
              ThrowsWith<c10::ValueError>("to_module", "The module is unchanged", parts...));
  EXPECT_THAT([&] { ToModuleGuard guard(tree, module, kInPlace); }, ThrowsWith<c10::ValueError>(parts...));
  EXPECT_EQ(before.changes_to(Snapshot(module)), "");
}

/// Every handle and every value, but not the versions, which copies move.
struct Contents {
  explicit Contents(torch::nn::Module& module) : held(from_module(module)), values(clone(detach(held))) {}
  void expect_same_as(torch::nn::Module& module) const {
    const TensorDict now = from_module(module);
    ASSERT_EQ(now.size(), held.size());
    for (const auto& [path, value] : now.leaves()) {
      EXPECT_TRUE(value.is_same(held.at(path))) << path;
      EXPECT_TRUE(value.equal(values.at(path))) << path;
      EXPECT_EQ(value.requires_grad(), held.at(path).requires_grad()) << path;
    }
  }
  TensorDict held, values;
};

// --- N

void names_that_hold_nothing_are_left_out() {
  Linear linear(LinearOptions(3, 4).bias(false));
  EXPECT_FALSE(from_module(*linear).contains("bias"));
}

void they_take_a_leaf_and_the_swap_lacks_them() {
  Linear linear(LinearOptions(3, 4).bias(false));
  const auto old = to_module(TensorDict({{"bias", torch::ones({4})}}), *linear);
  EXPECT_TRUE(old->empty());
  EXPECT_TRUE(linear->bias.equal(torch::ones({4})));
}

void a_guard_empties_them_again() {
  Linear linear(LinearOptions(3, 4).bias(false));
  const Snapshot before(*linear);
  { const ToModuleGuard guard(TensorDict({{"bias", torch::ones({4})}}), *linear); }
  EXPECT_EQ(before.changes_to(Snapshot(*linear)), "");
}

void a_guard_empties_buffers_again() {
  torch::nn::BatchNorm1d norm(torch::nn::BatchNormOptions(4).track_running_stats(false));
  const Snapshot before(*norm);
  { const ToModuleGuard guard(TensorDict({{"running_mean", torch::ones({4})}}), *norm); }
  EXPECT_EQ(before.changes_to(Snapshot(*norm)), "");
}

void nothing_can_be_copied_into_them() {
  Linear linear(LinearOptions(3, 4).bias(false));
  expect_refused(TensorDict({{"weight", torch::ones({4, 3})}, {"bias", torch::ones({4})}}), *linear,
                 "\"bias\": the module holds nothing there");
}

void a_strict_call_refuses_them() {
  Linear linear(LinearOptions(3, 4).bias(false));
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"bias", torch::ones({4})}}), *linear, {.strict = true});
      },
      ThrowsWith<c10::ValueError>("\"bias\": got a leaf", "\"weight\": got no leaf"));
}

// --- P

void values_are_copied_and_identities_stay() {
  Net net;
  const TensorDict held = from_module(*net);
  const TensorDict tree = numbered_leaves(*net);
  to_module(tree, *net, kInPlace);
  for (const auto& [path, value] : from_module(*net).leaves()) {
    EXPECT_TRUE(value.is_same(held.at(path))) << path;
    EXPECT_TRUE(value.equal(tree.at(path))) << path;
    EXPECT_FALSE(is_alias(value, tree.at(path))) << path;
  }
}

void shapes_do_not_broadcast() {
  Linear linear(3, 4);
  expect_refused(TensorDict({{"weight", torch::ones({3})}}), *linear, "\"weight\": shape [3], expected [4, 3]");
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"weight", torch::ones({3})}}), *linear, {.inplace = true, .check_shapes = false});
      },
      ThrowsWith<c10::ValueError>("inplace cannot be combined with check_shapes = false"));
}

void nothing_is_copied_after_a_failure() {
  Linear linear(3, 4);
  expect_refused(TensorDict({{"weight", torch::ones({4, 3})}, {"bias", torch::ones({3})}}), *linear, "\"bias\"");
}

void dtypes_are_not_cast() {
  Net net;
  expect_refused(
      TensorDict({{"fc1.bias", torch::ones({4}, torch::kDouble)}, {"norm.num_batches_tracked", torch::full({}, 2.9)}}),
      *net, "\"fc1.bias\": Double on cpu, expected Float on cpu", "\"norm.num_batches_tracked\": Float");
}

void the_swap_holds_plain_copies() {
  Linear linear(3, 4);
  const Tensor values = linear->weight.detach().clone();
  const auto old = to_module(numbered_leaves(*linear), *linear, kInPlace);
  EXPECT_TRUE(old->at("weight").equal(values));
  EXPECT_FALSE(old->at("weight").requires_grad());
  to_module(*old, *linear, kInPlace);
  EXPECT_TRUE(linear->weight.equal(values));
}

void a_guard_copies_back_and_leaves_the_tree() {
  Net net;
  const Contents before(*net);
  const TensorDict tree = numbered_leaves(*net);
  const TensorDict leaves = tree;
  const TensorDict values = clone(tree);
  {
    const ToModuleGuard guard(tree, *net, kInPlace);
    EXPECT_TRUE(net->fc1->weight.equal(tree.at("fc1.weight")));
    net->forward(torch::randn({5, 3}));  // moves the running statistics
    const torch::NoGradGuard no_grad;
    net->fc1->weight.add_(1);
  }
  before.expect_same_as(*net);
  for (const auto& [path, leaf] : tree.leaves()) {
    EXPECT_TRUE(leaf.is_same(leaves.at(path)));
    EXPECT_TRUE(leaf.equal(values.at(path)));
  }
}

void a_guard_restores_what_the_body_did_to_the_module() {
  Net net;
  const Contents before(*net);
  {
    const ToModuleGuard guard(numbered_leaves(*net), *net, kInPlace);
    net->to(torch::kDouble);
    net->fc2->weight = torch::zeros({2, 4});
  }
  before.expect_same_as(*net);
}

void autograd_refuses_an_earlier_graph() {
  Linear linear(3, 4);
  const Tensor x = torch::ones({1, 3}).requires_grad_();
  const Tensor y = linear->forward(x).sum();
  to_module(numbered_leaves(*linear), *linear, kInPlace);
  EXPECT_THAT([&] { y.backward(); }, ThrowsWith<c10::Error>("modified by an inplace operation"));
}

void a_tied_parameter_is_restored_to_its_first_value() {
  Twice twice;
  const Contents before(*twice);
  {
    const Tensor leaf = torch::full({2}, 3.);
    const ToModuleGuard guard(TensorDict({{"v", leaf}, {"w", leaf}}), *twice, kInPlace);
    EXPECT_EQ(twice->w[0].item<float>(), 3);
  }
  before.expect_same_as(*twice);
  expect_refused(TensorDict({{"v", torch::ones({2})}, {"w", torch::zeros({2})}}), *twice,
                 "\"v\" and \"w\" stand for one parameter");
}

void a_shared_module_is_copied_into_once() {
  Shared shared;
  const Contents before(*shared);
  const Tensor leaf = torch::full({2, 2}, 3.);
  const TensorDict tree({{"first.weight", leaf}, {"second.weight", leaf}});
  { const ToModuleGuard guard(tree, *shared, kInPlace); }
  before.expect_same_as(*shared);
  EXPECT_TRUE(tree.at("second.weight").is_same(leaf));
}

void return_swap_is_as_elsewhere() {
  Linear linear(3, 4);
  EXPECT_FALSE(to_module(numbered_leaves(*linear), *linear, {.inplace = true, .return_swap = false}).has_value());
  EXPECT_EQ(linear->bias[0].item<float>(), 1.5);
}

void every_class_takes_copies() {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4));
  const Tensor x = torch::randn({2, 1, 3});
  const Tensor before = std::get<0>(lstm->forward(x));
  torch::nn::LSTM other(torch::nn::LSTMOptions(3, 4));
  {
    const ToModuleGuard guard(from_module(*other), *lstm, kInPlace);
    EXPECT_TRUE(std::get<0>(lstm->forward(x)).equal(std::get<0>(other->forward(x))));
  }
  EXPECT_TRUE(std::get<0>(lstm->forward(x)).equal(before));
  Raw raw;
  const ToModuleGuard guard(TensorDict({{"w", torch::full({2}, 5.)}}), *raw, kInPlace);
  EXPECT_TRUE(raw->forward(torch::ones({2})).equal(torch::full({2}, 5.)));
}

void transforms_are_refused() {
  Linear linear(3, 4);
  const Snapshot before(*linear);
  const auto copy = [&](const Tensor& weight) {
    to_module(TensorDict({{"weight", weight}}), *linear, kInPlace);
    return linear->forward(torch::ones({3})).sum();
  };
  EXPECT_THAT([&] { grad(copy)(torch::ones({4, 3})); }, ThrowsWith<c10::ValueError>("inplace is not possible inside"));
  EXPECT_THAT([&] { vmap(copy)(torch::ones({2, 4, 3})); }, ThrowsWith<c10::ValueError>("inplace is not possible"));
  EXPECT_EQ(before.changes_to(Snapshot(*linear)), "");
}

void a_dual_is_refused() {
  Linear linear(3, 4);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  const Tensor dual = at::_make_dual(torch::zeros({4, 3}), torch::ones({4, 3}), level);
  expect_refused(TensorDict({{"weight", dual}}), *linear, "\"weight\": a copy in place would lose");
  torch::autograd::ForwardADLevel::release_idx(level);
}

void other_devices_are_refused() {
  Linear linear(3, 4);
  expect_refused(TensorDict({{"weight", torch::ones({4, 3}, torch::kMeta)}}), *linear,
                 "\"weight\": Float on meta, expected Float on cpu");
  to_module(map(from_module(*linear), [](const Tensor& held) { return held.detach().to(torch::kMeta); }), *linear);
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"weight", torch::ones({4, 3})}}), *linear, kInPlace);
      },
      ThrowsWith<c10::ValueError>("\"weight\": Float on cpu, expected Float on meta"));
}

void non_blocking_is_for_copies() {
  Linear linear(3, 4);
  const TensorDict tree = numbered_leaves(*linear);
  to_module(tree, *linear, {.inplace = true, .non_blocking = true});
  EXPECT_TRUE(linear->weight.equal(tree.at("weight")));
  EXPECT_THAT([&] { to_module(tree, *linear, {.non_blocking = true}); },
              ThrowsWith<c10::ValueError>("non_blocking is for copies, so it needs inplace = true"));
}

void a_copy_goes_to_what_the_module_holds_now() {
  Linear linear(3, 4);
  const TensorDict first = numbered_leaves(*linear);
  to_module(first, *linear);
  to_module(zeros_like(first), *linear, kInPlace);
  EXPECT_TRUE(first.at("weight").equal(torch::zeros({4, 3})));
}

}  // namespace

std::vector<std::string> ids() {
  std::vector<std::string> all = series({{"N", 6}, {"P", 18}});
  all.push_back("N3b");
  return all;
}

std::vector<Row> rows() {
  return {
      {"N1", kSame, "names that hold nothing are left out", names_that_hold_nothing_are_left_out},
      {"N2", kBetter, "they take a leaf; the swap lacks them, where Python has None",
       they_take_a_leaf_and_the_swap_lacks_them},
      {"N3", kBetter, "a guard empties them again; Python fails and keeps the leaf", a_guard_empties_them_again},
      {"N3b", kBetter, "also buffers", a_guard_empties_buffers_again},
      {"N4", kBetter, "nothing can be copied into them, an error that names them", nothing_can_be_copied_into_them},
      {"N5", kBetter, "in every class, and a strict call refuses them", a_strict_call_refuses_them},
      {"N6", kSame, "as functional_call does it", a_guard_empties_them_again},
      {"P1", kSame, "values are copied, identities stay", values_are_copied_and_identities_stay},
      {"P2", kBetter, "shapes must be equal; Python broadcasts", shapes_do_not_broadcast},
      {"P3", kBetter, "nothing is copied when one leaf fails; Python leaves what came before",
       nothing_is_copied_after_a_failure},
      {"P4", kBetter, "dtypes must be equal; Python casts, fractions are lost", dtypes_are_not_cast},
      {"P5", kBetter, "the swap holds plain copies; Python's hang on the module's graph", the_swap_holds_plain_copies},
      {"P6", kBetter, "a guard copies back and leaves the tree alone; Python replaces every leaf of it",
       a_guard_copies_back_and_leaves_the_tree},
      {"P7", kBetter, "whatever the body did to the module", a_guard_restores_what_the_body_did_to_the_module},
      {"P8", kBetter, "autograd refuses an earlier graph; Python's gradient is silently wrong",
       autograd_refuses_an_earlier_graph},
      {"P9", kBetter, "a tied parameter gets its first value back; Python restores the leaf's",
       a_tied_parameter_is_restored_to_its_first_value},
      {"P10", kBetter, "a shared module is copied into once, and the tree stays", a_shared_module_is_copied_into_once},
      {"P11", kSame, "return_swap = false returns nothing", return_swap_is_as_elsewhere},
      {"P12", kBetter, "every class takes copies, LSTM and unknown ones too; Python fails", every_class_takes_copies},
      {"P13", kSame, "inside a transform it is an error", transforms_are_refused},
      {"P14", kBetter, "other devices are refused, and duals; Python ignores a real leaf for a meta module",
       [] {
         other_devices_are_refused();
         a_dual_is_refused();
       }},
      {"P15", kBetter, "non_blocking reaches the copies, and is refused where there are none; Python ignores it",
       non_blocking_is_for_copies},
      {"P16", kNoMeaning, "a TensorDict is no module; module parameters are one, see the D rows"},
      {"P17", kNoMeaning, "inplace has two values"},
      {"P18", kSame, "a copy goes into the leaf that an earlier call installed",
       a_copy_goes_to_what_the_module_holds_now},
  };
}

}  // namespace graft::testing
