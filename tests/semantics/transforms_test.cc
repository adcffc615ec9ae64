// F: modules that are swapped inside the function transforms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/tensordict_params.h"
#include "tensordict/autograd.h"
#include "tensordict/copy.h"
#include "tensordict/global_reduce.h"
#include "tensordict/join.h"
#include "tests/semantics/modules.h"
#include "tests/semantics/table.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

using enum Verdict;
using torch::Tensor;
using torch::nn::Linear;

namespace {

/// tanh(x w + b), so that second derivatives are not zero.
struct CurvedImpl : torch::nn::LinearImpl {
  CurvedImpl() : torch::nn::LinearImpl(3, 2) { to(torch::kDouble); }
  Tensor loss(const Tensor& x) { return torch::tanh(forward(x)).sum(); }
};
TORCH_MODULE(Curved);

/// The loss of `module` with the leaves of `tree`, by a guard.
Tensor loss_with(const TensorDict& tree, CurvedImpl& module, const Tensor& x) {
  const ToModuleGuard guard(tree, module);
  return module.loss(x);
}

/// The same loss written out.
Tensor plain_loss(const TensorDict& tree, const Tensor& x) {
  return torch::tanh(x.matmul(tree.at("weight").t()) + tree.at("bias")).sum();
}

TensorDict random_leaves(torch::nn::Module& module) {
  return map(from_module(module), [](const Tensor& leaf) { return torch::randn_like(leaf.detach()); });
}

Tensor random_input() { return torch::randn({5, 3}, torch::kDouble); }

/// The gradient of `loss` by autograd; its graph allows another.
TensorDict autograd_gradients(const TensorDict& tree, const std::function<Tensor(const TensorDict&)>& loss) {
  const TensorDict leaves = requires_grad_(clone(detach(tree)));
  return gradients(loss(leaves), leaves, {.create_graph = true});
}

/// A level of forward mode, for the time of a block.
class DualLevel {
 public:
  DualLevel() : level_(torch::autograd::ForwardADLevel::get_next_idx()) {}
  ~DualLevel() { torch::autograd::ForwardADLevel::release_idx(level_); }
  DualLevel(const DualLevel&) = delete;
  DualLevel& operator=(const DualLevel&) = delete;

  Tensor dual(const Tensor& value, const Tensor& tangent) const { return at::_make_dual(value, tangent, level_); }
  TensorDict dual(const TensorDict& values, const TensorDict& tangents) const {
    return zip_map(values, tangents, [&](const Tensor& value, const Tensor& tangent) { return dual(value, tangent); });
  }
  Tensor tangent(const Tensor& value) const { return value._fw_grad(level_).clone(); }

 private:
  uint64_t level_;
};

// --- vmap

void a_stacked_tree_is_mapped_over() {
  const std::vector<Linear> nets{Linear(3, 2), Linear(3, 2)};
  const TensorDict stacked = from_modules(nets);
  Linear linear(3, 2);
  const Tensor x = torch::randn({5, 3});
  const auto forward = [&](const TensorDict& tree, const Tensor& input) {
    EXPECT_TRUE(tree.batch_size().empty());
    const ToModuleGuard guard(tree, *linear);
    EXPECT_TRUE(linear->weight.is_same(tree.at("weight")));
    return linear->forward(input);
  };
  const Tensor y = vmap(forward, {.in_dims = {0, std::nullopt}})(stacked, x);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(y[i].allclose(Linear(nets[i])->forward(x), 1e-5, 1e-6));
  y.sum().backward();
  EXPECT_TRUE(stacked.at("bias").grad().equal(torch::full({2, 2}, 5.)));
  EXPECT_FALSE(linear->bias.grad().defined());
}

void dims_of_a_tree_count_its_batch_dims() {
  Linear linear(3, 4);
  const TensorDict tree({{"weight", torch::randn({2, 5, 4, 3})}, {"bias", torch::randn({2, 5, 4})}}, {2, 5});
  const auto forward = [&](const TensorDict& leaves, const Tensor& x) {
    EXPECT_EQ(leaves.batch_size(), std::vector<int64_t>{2});
    return leaves.at("weight").matmul(x) + leaves.at("bias");
  };
  const Tensor x = torch::randn({3});
  const Tensor expected = (tree.at("weight").matmul(x) + tree.at("bias")).transpose(0, 1);
  EXPECT_TRUE(vmap(forward, {.in_dims = {1, std::nullopt}})(tree, x).allclose(expected));
  EXPECT_TRUE(vmap(forward, {.in_dims = {-1, std::nullopt}})(tree, x).allclose(expected));
}

void a_dim_beyond_the_batch_dims_is_refused() {
  const TensorDict tree({{"weight", torch::randn({5, 4, 3})}, {"bias", torch::randn({5, 4})}}, {5});
  const auto sum = [](const TensorDict& leaves) { return leaves.at("weight").sum() + leaves.at("bias").sum(); };
  EXPECT_THAT([&] { vmap(sum, {.in_dims = 1})(tree); }, ThrowsWith<c10::ValueError>("in_dims=1"));
  TensorDict unbatched = tree;
  unbatched.set_batch_size({});
  EXPECT_EQ(vmap(sum)(unbatched).sizes(), torch::IntArrayRef({5}));
}

void keys_added_inside_stay_inside() {
  const TensorDict shared({{"w", torch::ones({2})}});
  const auto add = [](TensorDict tree, const Tensor& x) {
    tree.set("more", x);
    return tree.at("w") * tree.at("more");
  };
  EXPECT_TRUE(vmap(add, {.in_dims = {std::nullopt, 0}})(shared, torch::ones({3, 2})).equal(torch::ones({3, 2})));
  EXPECT_EQ(shared.size(), 1);
}

void an_unmapped_plain_leaf_takes_the_flag_unless_told() {
  Linear linear(3, 2);
  const TensorDict tree = numbered_leaves(*linear);
  const auto mapped = [&](const auto& forward) {
    return vmap(forward, {.in_dims = {std::nullopt, 0}})(tree, torch::ones({5, 3}));
  };
  const auto swapped = [&](const ToModuleOptions& options) {
    return mapped([&](const TensorDict& leaves, const Tensor& x) {
      const ToModuleGuard guard(leaves, *linear, options);
      return linear->forward(x);
    });
  };
  EXPECT_TRUE(swapped({}).requires_grad());
  EXPECT_FALSE(swapped({.preserve_module_state = false}).requires_grad());
  const auto call = [&](const TensorDict& leaves, const Tensor& x) { return functional_call(linear, leaves, x); };
  EXPECT_FALSE(mapped(call).requires_grad());
}

void vmap_nests_over_a_doubly_stacked_tree() {
  Linear linear(3, 2);
  const TensorDict tree({{"weight", torch::randn({4, 5, 2, 3})}, {"bias", torch::randn({4, 5, 2})}}, {4, 5});
  const auto forward = [&](const TensorDict& leaves, const Tensor& x) {
    const ToModuleGuard guard(leaves, *linear);
    return linear->forward(x);
  };
  const VmapOptions over_tree{.in_dims = {0, std::nullopt}};
  const Tensor x = torch::randn({3});
  EXPECT_TRUE(vmap(vmap(forward, over_tree), over_tree)(tree, x).allclose(tree.at("weight").matmul(x) + tree.at("bias"),
                                                                          1e-5, 1e-6));
}

void an_rnn_is_mapped_as_any_module() {
  torch::nn::GRU gru(torch::nn::GRUOptions(3, 4));
  const Tensor x = torch::randn({2, 1, 3});
  const auto loss = [&](const TensorDict& leaves) {
    const ToModuleGuard guard(leaves, *gru);
    return std::get<0>(gru->forward(x)).square().sum();
  };
  const TensorDict own = from_module(*gru);
  const TensorDict other = random_leaves(*gru);
  const Snapshot before(*gru);
  const Tensor losses = vmap(loss)(stack({detach(own), detach(other)}));
  EXPECT_EQ(before.changes_to(Snapshot(*gru)), "");
  EXPECT_TRUE(losses.allclose(torch::stack({loss(own), loss(other)}), 1e-5, 1e-5));
  const auto expected = autograd_gradients(own, [&](const TensorDict& leaves) { return loss(leaves); });
  EXPECT_THAT(grad(loss)(detach(own)), TensorDictNear(detach(expected), 1e-5));
}

// --- grad

void the_gradient_of_a_tree_is_a_tree() {
  for (const bool frozen : {false, true}) {
    Curved module;
    requires_grad_(from_module(*module), !frozen);
    const TensorDict tree = random_leaves(*module);
    const Tensor x = random_input();
    const auto loss = [&](const TensorDict& leaves) { return loss_with(leaves, *module, x); };
    const auto expected = autograd_gradients(tree, [&](const TensorDict& leaves) { return plain_loss(leaves, x); });
    EXPECT_THAT(grad(loss)(tree), TensorDictNear(detach(expected), 1e-12));
  }
}

void integer_leaves_are_refused_by_name() {
  Net net;
  net->eval();
  const auto loss = [&](const TensorDict& tree) { return functional_call(net, tree, torch::randn({5, 3})).sum(); };
  EXPECT_THAT([&] { grad(loss)(from_module(*net)); }, ThrowsWith<c10::TypeError>("\"norm.num_batches_tracked\""));
  EXPECT_EQ(grad(loss)(from_module(*net, State::kParameters)).size(), 5);
}

void a_tensordict_params_is_differentiated_by_its_tree() {
  Linear net(3, 2);
  const TensorDictParams params(from_module(*net));
  const Tensor x = torch::randn({5, 3});
  const auto loss = [&](const TensorDict& leaves) { return functional_call(net, leaves, x).square().sum(); };
  const TensorDict gradients = grad(loss)(params->tree());
  net->forward(x).square().sum().backward();
  EXPECT_THAT(gradients, TensorDictNear(map(from_module(*net), [](const Tensor& leaf) { return leaf.grad(); }), 1e-4));
}

void the_gradient_has_the_keys_of_the_argument() {
  const auto loss = [](TensorDict tree) {
    tree.set("more", tree.at("w") * 2);
    return tree.at("more").sum();
  };
  EXPECT_THAT(grad(loss)(TensorDict({{"w", torch::ones({2})}})),
              TensorDictEq(TensorDict({{"w", torch::full({2}, 2.)}})));
}

void per_sample_gradients_equal_the_loop() {
  Curved module;
  const TensorDict tree = random_leaves(*module);
  const Tensor x = random_input();
  const auto loss = [&](const TensorDict& leaves, const Tensor& sample) { return loss_with(leaves, *module, sample); };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(tree, x);
  EXPECT_EQ(gradients.batch_size(), std::vector<int64_t>{5});
  for (int i = 0; i < 5; ++i) {
    const auto expected = autograd_gradients(tree, [&](const TensorDict& leaves) { return plain_loss(leaves, x[i]); });
    EXPECT_THAT(unbind(gradients)[i], TensorDictNear(detach(expected), 1e-12));
  }
}

void second_derivatives_equal_autograd() {
  Curved module;
  const TensorDict tree = random_leaves(*module), direction = random_leaves(*module);
  const Tensor x = random_input();
  const auto gradient = grad([&](const TensorDict& leaves) { return loss_with(leaves, *module, x); });
  const auto slope = [&](const TensorDict& leaves) { return dot(gradient(leaves), direction); };
  const auto expected = autograd_gradients(tree, [&](const TensorDict& leaves) {
    return dot(gradients(plain_loss(leaves, x), leaves, {.create_graph = true}), direction);
  });
  EXPECT_THAT(grad(slope)(tree), TensorDictNear(detach(expected), 1e-12));

  // The rows of a Jacobian: one gradient for each output.
  const auto output = [&](const TensorDict& leaves, const Tensor& row) {
    const ToModuleGuard guard(leaves, *module);
    return module->forward(x[0]).dot(row);
  };
  const Tensor eye = torch::eye(2, torch::kDouble);
  const TensorDict jacobian = vmap(grad(output), {.in_dims = {std::nullopt, 0}})(tree, eye);
  EXPECT_TRUE(jacobian.at("bias").equal(eye));
  EXPECT_TRUE(jacobian.at("weight").equal(eye.unsqueeze(-1) * x[0]));
}

void a_step_of_an_inner_loop_is_differentiated() {
  Curved module;
  const TensorDict start = requires_grad_(random_leaves(*module));
  const Tensor x = random_input();
  const auto meta_loss = [&](const std::function<Tensor(const TensorDict&)>& loss) {
    const auto gradients = torch::autograd::grad({loss(start)}, start.values(), {}, {}, true, true);
    const TensorDict step(start.keys(), gradients);
    const TensorDict adapted = zip_map(start, step, [](const Tensor& p, const Tensor& g) { return p - g * 0.1; });
    return loss(adapted);
  };
  const Tensor swapped = meta_loss([&](const TensorDict& leaves) { return loss_with(leaves, *module, x); });
  const Tensor plain = meta_loss([&](const TensorDict& leaves) { return plain_loss(leaves, x); });
  const TensorDict got = gradients(swapped, start);
  const TensorDict expected = gradients(plain, start);
  EXPECT_THAT(got, TensorDictNear(expected, 1e-12));
}

// --- Forward mode

void tangents_pass_whatever_the_flags() {
  Curved module;
  const TensorDict values = random_leaves(*module), tangents = random_leaves(*module);
  const Tensor x = random_input();
  const auto gradient = autograd_gradients(values, [&](const TensorDict& leaves) { return plain_loss(leaves, x); });
  const Tensor expected = dot(gradient, tangents).detach();
  for (const bool frozen : {false, true}) {
    for (const bool leaf_flag : {false, true}) {
      for (const bool preserve : {false, true}) {
        requires_grad_(from_module(*module), !frozen);
        const DualLevel level;
        const TensorDict duals = level.dual(requires_grad_(clone(detach(values)), leaf_flag), tangents);
        const ToModuleGuard guard(duals, *module, {.preserve_module_state = preserve});
        EXPECT_TRUE(level.tangent(module->loss(x)).allclose(expected)) << frozen << leaf_flag << preserve;
        EXPECT_TRUE(level.tangent(functional_call(module, duals, x)).defined());
      }
    }
  }
}

void a_jacobian_comes_column_by_column() {
  Curved module;
  const TensorDict values = random_leaves(*module);
  const Tensor x = random_input()[0];
  for (int64_t row = 0; row < 2; ++row) {
    for (int64_t column = 0; column < 3; ++column) {
      Tensor basis = torch::zeros({2, 3}, torch::kDouble);
      basis[row][column] = 1;
      const DualLevel level;
      const ToModuleGuard guard(TensorDict({{"weight", level.dual(values.at("weight"), basis)}}), *module);
      Tensor expected = torch::zeros({2}, torch::kDouble);
      expected[row] = x[column];
      EXPECT_TRUE(level.tangent(module->forward(x)).equal(expected));
    }
  }
}

void forward_over_reverse_equals_reverse_over_reverse() {
  Curved module;
  const TensorDict values = random_leaves(*module), tangents = random_leaves(*module);
  const Tensor x = random_input();
  const auto gradient = grad([&](const TensorDict& leaves) { return loss_with(leaves, *module, x); });
  const TensorDict expected = grad([&](const TensorDict& leaves) { return dot(gradient(leaves), tangents); })(values);
  const DualLevel level;
  const TensorDict gradients = gradient(level.dual(values, tangents));
  EXPECT_THAT(map(gradients, [&](const Tensor& leaf) { return level.tangent(leaf); }), TensorDictNear(expected, 1e-12));
}

void batched_duals_keep_their_tangents() {
  Curved module;
  const std::vector<TensorDict> values{random_leaves(*module), random_leaves(*module)};
  const std::vector<TensorDict> tangents{random_leaves(*module), random_leaves(*module)};
  const Tensor x = random_input();
  const auto loss = [&](const TensorDict& leaves) { return loss_with(leaves, *module, x); };
  const DualLevel level;
  const Tensor got = level.tangent(vmap(loss)(level.dual(stack(values), stack(tangents))));
  for (int i = 0; i < 2; ++i) {
    const auto gradient =
        autograd_gradients(values[i], [&](const TensorDict& leaves) { return plain_loss(leaves, x); });
    EXPECT_TRUE(got[i].allclose(dot(gradient, tangents[i])));
  }
}

void a_dual_buffer_keeps_its_tangent() {
  Counter counter;
  const DualLevel level;
  const Tensor dual = level.dual(torch::ones({}), torch::full({}, 3.));
  const ToModuleGuard guard(TensorDict({{"count", dual}}), *counter);
  EXPECT_TRUE(counter->count.is_same(dual));
  EXPECT_EQ(level.tangent(counter->forward() * 2).item<double>(), 6);
}

// --- Options, and swaps for good

void without_preserving_the_derivatives_are_the_same() {
  Curved module;
  const Tensor x = random_input();
  const TensorDict tree = stack({random_leaves(*module), random_leaves(*module)});
  const auto gradients = [&](const ToModuleOptions& options) {
    const auto loss = [&](const TensorDict& leaves) {
      const ToModuleGuard guard(leaves, *module, options);
      return module->loss(x);
    };
    return vmap(grad(loss))(tree);
  };
  EXPECT_THAT(gradients({.preserve_module_state = false}), TensorDictEq(gradients({})));
}

void what_stays_after_grad_is_plain_and_after_vmap_is_refused() {
  Linear linear(3, 2);
  const TensorDict own = from_module(*linear);
  const Tensor weight = torch::randn({2, 3}), x = torch::randn({3});
  const auto install = [&](const Tensor& leaf) {
    to_module(TensorDict({{"weight", leaf}}), *linear);
    return linear->forward(x).sum();
  };
  grad(install)(weight);
  EXPECT_TRUE(linear->forward(x).allclose(weight.matmul(x) + own.at("bias")));
  to_module(own, *linear);
  vmap(install)(torch::randn({5, 2, 3}));
  EXPECT_ANY_THROW(linear->forward(x));
  to_module(own, *linear);
  EXPECT_TRUE(linear->weight.is_same(own.at("weight")));
  EXPECT_NO_THROW(linear->forward(x));
}

}  // namespace

std::vector<std::string> ids() { return series({{"F", 25}}); }

std::vector<Row> rows() {
  return {
      {"F1", kSame, "a stacked tree is mapped over, and gradients reach its leaves alone",
       a_stacked_tree_is_mapped_over},
      {"F2", kSame, "dims of a tree count its batch dims, from the end if negative",
       dims_of_a_tree_count_its_batch_dims},
      {"F3", kBetter, "a dim beyond them is refused; Python infers others from the leaves",
       a_dim_beyond_the_batch_dims_is_refused},
      {"F4", kSame, "keys added inside stay inside", keys_added_inside_stay_inside},
      {"F5", kSame,
       "a plain leaf that is not mapped takes the parameter's flag, so a graph is recorded; not without "
       "preserve_module_state, nor in functional_call",
       an_unmapped_plain_leaf_takes_the_flag_unless_told},
      {"F6", kSame, "the gradient of a tree is a tree, whether the module is frozen or not",
       the_gradient_of_a_tree_is_a_tree},
      {"F7", kBetter, "integer leaves are refused by name; Python names none", integer_leaves_are_refused_by_name},
      {"F8", kBetter, "a TensorDictParams is differentiated by its tree; Python refuses",
       a_tensordict_params_is_differentiated_by_its_tree},
      {"F9", kBetter, "the gradient has the keys of the argument; Python's those that the function added too",
       the_gradient_has_the_keys_of_the_argument},
      {"F10", kSame, "gradients for each sample equal the loop, and have its batch size",
       per_sample_gradients_equal_the_loop},
      {"F11", kSame, "vjp and jacrev as grad of each output, hessian as grad of grad, equal autograd",
       second_derivatives_equal_autograd},
      {"F12", kBetter, "jvp, checked by duals: tangents pass whatever the flags; Python's are silently zero",
       tangents_pass_whatever_the_flags},
      {"F13", kBetter, "jacfwd, checked by duals: each column is right; Python's are silently zero",
       a_jacobian_comes_column_by_column},
      {"F14", kNoMeaning, "nothing traces a function to call its linear part again; take duals again"},
      {"F15", kBetter, "duals of leaves with and without grad keep their tangents; Python loses the latter",
       tangents_pass_whatever_the_flags},
      {"F16", kBetter,
       "grad of duals is the product with the Hessian, and batched duals keep their tangents; Python's are zero under "
       "vmap",
       [] {
         forward_over_reverse_equals_reverse_over_reverse();
         batched_duals_keep_their_tangents();
       }},
      {"F17", kSame,
       "a dual in a buffer keeps its tangent (of which LibTorch's batch_norm makes nothing, here as there)",
       a_dual_buffer_keeps_its_tangent},
      {"F18", kSame, "without preserve_module_state the derivatives are the same",
       without_preserving_the_derivatives_are_the_same},
      {"F19", kSame, "what a swap for good leaves is plain after grad, and refused by LibTorch after vmap",
       what_stays_after_grad_is_plain_and_after_vmap_is_refused},
      {"F20", kSame, "vmap nests over a doubly stacked tree", vmap_nests_over_a_doubly_stacked_tree},
      {"F21", kBetter, "vmap takes an RNN as any module; Python has no rule for it", an_rnn_is_mapped_as_any_module},
      {"F22", kSame, "a step of an inner loop is differentiated", a_step_of_an_inner_loop_is_differentiated},
      {"F23", kNoMeaning, "LibTorch has no checkpoints, so nothing runs forward again"},
      {"F24", kNoMeaning, "LibTorch has no lazy modules"},
      {"F25", kNoMeaning, "nothing here is compiled"},
  };
}

}  // namespace graft::testing
