// Swaps in the less usual kinds of modules: type-erased ones, functions, low precision, shared modules with a state
// dict, classes that read their registry; and leaves of unusual kinds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/load_hooks.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "functional/to_module.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/throws_with.h"
#include "vmap/stacked_state.h"

namespace graft::testing {

/// Reads its registry by name.
struct RegistryNetImpl : torch::nn::Module {
  RegistryNetImpl() { register_parameter("w", torch::ones({2})); }
  Tensor forward(const Tensor& x) { return x * named_parameters()["w"]; }
};

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::RegistryNetImpl)

namespace graft::testing {
namespace {

using torch::nn::AnyModule;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::Sequential;

TensorDict doubled(const TensorDict& tree) {
  return tree.map([](const Tensor& leaf) { return 2 * leaf.detach(); });
}

// --- Modules behind a type

TEST(ModuleKindsTest, TakesAnyModules) {
  const AnyModule any(Linear(2, 3));
  const TensorDict state = from_module(any);
  const Tensor x = torch::rand({1, 2});
  AnyModule caller = any;
  const Tensor y = caller.forward(x);
  {
    const ToModuleGuard guard(doubled(state), any);
    EXPECT_TRUE(caller.forward(x).allclose(2 * y));
  }
  EXPECT_TRUE(caller.forward(x).equal(y));
}

TEST(ModuleKindsTest, TakesNamedAnyModulesAndFunctions) {
  using torch::nn::NamedAnyModule;
  Sequential net(
      std::initializer_list<NamedAnyModule>{{"first", Linear(2, 3)},
                                            {"twice", torch::nn::Functional([](const Tensor& x) { return 2 * x; })},
                                            {"last", Linear(LinearOptions(3, 1).bias(false))}});
  const TensorDict state = from_module(net);
  ASSERT_NE(state.find("first.weight"), nullptr);
  const Tensor x = torch::rand({1, 2});
  const Tensor y = net->forward(x);
  const Snapshot before(*net);
  EXPECT_TRUE(functional_call(net, doubled(state), x).allclose(4 * y));
  EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
}

// --- Low precision

TEST(ModuleKindsTest, SwapsInBfloat16) {
  Linear net(4, 2);
  net->to(torch::kBFloat16);
  const TensorDict state = from_module(net);
  const Tensor x = torch::rand({3, 4}).to(torch::kBFloat16);
  const Tensor y = net->forward(x);
  {
    const ToModuleGuard guard(doubled(state), net);
    EXPECT_EQ(net->weight.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(net->weight.requires_grad());
    EXPECT_TRUE(net->forward(x).equal(2 * y));
  }
  EXPECT_TRUE(net->forward(x).equal(y));
}

// --- Classes that read their registry

TEST(ModuleKindsTest, SwapsInAClassThatReadsItsRegistry) {
  RegistryNetImpl net;
  const Tensor leaf = torch::full({2}, 3.0).requires_grad_();
  {
    const ToModuleGuard guard(TensorDict({{"w", leaf}}), net);
    net.forward(torch::ones({2})).sum().backward();
  }
  EXPECT_TRUE(leaf.grad().equal(torch::ones({2})));
  EXPECT_TRUE(net.forward(torch::ones({2})).equal(torch::ones({2})));
}

// --- State dicts of shared and tied modules

struct SharedImpl : torch::nn::Module {
  SharedImpl() {
    one = register_module("one", Linear(2, 2));
    register_module("two", one.ptr());
  }
  Linear one = nullptr;
};

const ToModuleOptions kStateDict{.use_state_dict = true};

TEST(StateDictKindsTest, LoadsASharedModuleUnderEitherName) {
  SharedImpl net;
  const Snapshot before(net);
  const TensorDict state = from_module(net);
  {
    const ToModuleGuard guard(state, net, kStateDict);
    EXPECT_TRUE(net.one->weight.equal(state.at("one.weight")));
  }
  for (const std::string name : {"one.weight", "two.weight"}) {
    const ToModuleGuard guard(TensorDict({{name, torch::full({2, 2}, 3.0)}}), net, kStateDict);
    EXPECT_TRUE(net.one->weight.equal(torch::full({2, 2}, 3.0))) << name;
  }
  const TensorDict two({{"one.weight", torch::zeros({2, 2})}, {"two.weight", torch::ones({2, 2})}});
  EXPECT_THAT([&] { to_module(two, net, kStateDict); },
              ThrowsWith<c10::ValueError>("\"one.weight\" and \"two.weight\"", "two different tensors"));
  EXPECT_EQ(before.changes_to(Snapshot(net)), "");
}

TEST(StateDictKindsTest, KeepsTiesOfTheTree) {
  Sequential net(Linear(2, 2), Linear(2, 2));
  const Tensor leaf = torch::ones({2, 2});
  const ToModuleGuard guard(TensorDict({{"0.weight", leaf}, {"1.weight", leaf}}), net,
                            {.use_state_dict = true, .preserve_module_state = false});
  const TensorDict held = guard.current();
  EXPECT_TRUE(held["0.weight"].is_same(held["1.weight"]));
}

TEST(StateDictKindsTest, CountsRenamedLeavesWhateverTheirValues) {
  const Linear net(LinearOptions(2, 2).bias(false));
  register_load_hook(net.ptr(), [](TensorDict& state, const std::string& prefix) {
    state.set(prefix + "weight", Tensor(state.at(prefix + "w")));
    state.erase(prefix + "w");
  });
  const TensorDict same({{"w", net->weight.detach().clone()}});
  const auto old = to_module(same, net, {.strict = true, .use_state_dict = true});
  EXPECT_NE(old->find("weight"), nullptr);
}

// --- Leaves

TEST(LeafKindsTest, InferenceTensorsAreRefusedWhereTheyWouldRequireGrad) {
  Linear net(2, 2);
  Tensor leaf;
  {
    const c10::InferenceMode inference;
    leaf = torch::ones({2, 2});
  }
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"weight", leaf}}), net);
      },
      ThrowsWith<c10::ValueError>("\"weight\"", "an inference tensor"));
  EXPECT_TRUE(to_module(TensorDict({{"weight", leaf}}), net, {.preserve_module_state = false}).has_value());
}

TEST(LeafKindsTest, SparseTensorsAreNotCopiedInPlace) {
  Linear net(2, 2);
  const Tensor leaf = torch::eye(2).to_sparse();
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"weight", leaf}}), net, {.inplace = true});
      },
      ThrowsWith<c10::ValueError>("\"weight\"", "Sparse", "expected Strided"));
}

TEST(LeafKindsTest, NullModulesAreRefused) {
  const std::vector<std::shared_ptr<torch::nn::LinearImpl>> modules(2);
  EXPECT_THAT([&] { from_modules(modules); }, ThrowsWith<c10::ValueError>("null pointer"));
}

}  // namespace
}  // namespace graft::testing
