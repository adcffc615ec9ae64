// to_module, ToModuleGuard and functional_call that fail, or whose body fails: the module and the thread are as before.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/functional_call.h"
#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tensordict/map.h"
#include "tests/vmap/failed_call.h"

namespace graft::testing {
namespace {

using Stages = std::vector<Stage>;

// --- Trees that do not fit

/// A way to install a tree.
struct Call {
  std::string name;
  std::function<void(World&, const TensorDict&)> install;
};

const Call kCalls[] = {
    {"ToModule", [](World& world, const TensorDict& tree) { to_module(tree, world.module()); }},
    {"Guard", [](World& world, const TensorDict& tree) { ToModuleGuard guard(tree, world.module()); }},
    {"FunctionalCall", [](World& world, const TensorDict& tree) { functional_call(world.module(), tree, world.x()); }},
};

std::string name_at(const World& world, std::size_t position) { return world.leaves().keys()->path(position); }

TensorDict with(const World& world, const std::string& name, const Tensor& leaf) {
  TensorDict tree = world.leaves();
  tree.set(name, leaf);
  return tree;
}

/// The leaves with one that the module has no place for, at `position`.
TensorDict with_unknown_key(const World& world, std::size_t position) {
  TensorDict tree;
  std::size_t i = 0;
  for (const auto& [path, leaf] : world.leaves().leaves()) {
    if (i++ == position) tree.set("no_such_name", torch::ones({1}));
    tree.set(path, leaf);
  }
  if (position >= i) tree.set("no_such_name", torch::ones({1}));
  return tree;
}

TensorDict with_integer_leaf(const World& world) {
  const auto& [path, leaf] = *world.params().leaves().begin();
  return with(world, path, torch::ones_like(leaf, torch::kLong));
}

TensorDict with_grad(World& world) {
  return map(world.leaves(), [](const Tensor& leaf) { return leaf.detach().clone().requires_grad_(); });
}

/// A tensor made under inference mode may not be asked to require grad outside of it.
void install_inference_tensors(const Call& call, World& world) {
  const TensorDict leaves = [&] {
    const c10::InferenceMode inference;
    return World::copy_of(world.leaves());
  }();
  const c10::InferenceMode no_inference(false);
  call.install(world, leaves);
}

Stages misfits() {
  Stages stages;
  for (const Call& call : kCalls) {
    const auto add = [&](const std::string& name, const std::string& thrown, auto tree_of, auto... kinds) {
      Stage stage{call.name + name, thrown, [call, tree_of](World& world) { call.install(world, tree_of(world)); }};
      if constexpr (sizeof...(kinds) > 0) stage.kinds = {kinds...};
      stages.push_back(stage);
    };
    const bool calls_forward = call.name == "FunctionalCall";
    add("UnknownKeyFirst", "IndexError", [](World& world) { return with_unknown_key(world, 0); });
    add("UnknownKeyInTheMiddle", "no_such_name", [](World& world) { return with_unknown_key(world, 2); });
    add("UnknownKeyLast", "no_such_name", [](World& world) { return with_unknown_key(world, 1000); });
    add("WrongShapeFirst", "ValueError", [](World& world) {
      return with(world, name_at(world, 0), torch::ones({9, 9}, torch::kDouble));
    });
    add("WrongShapeLast", "[9, 9]", [](World& world) {
      return with(world, name_at(world, world.leaves().size() - 1), torch::ones({9, 9}, torch::kDouble));
    });
    add(
        "ConflictInASharedModule", "conflicting leaves",
        [](World& world) {
          return with(world, "again.weight", torch::ones({4, 4}, torch::kDouble));
        },
        Kind::kRecurrent);
    if (calls_forward) {
      add(
          "ConflictOfATie", "conflicting leaves",
          [](World& world) { return with(world, "tied.0", torch::ones({4}, torch::kDouble)); }, Kind::kNested);
      add("IntegerLeaf", "", with_integer_leaf, Kind::kNested, Kind::kRecurrent);
      continue;
    }
    add("IntegerLeaf", "expected a floating point", with_integer_leaf, Kind::kNested, Kind::kRecurrent,
        Kind::kAnnotated);
    add("UnannotatedClass", "GRAFT_SLOTS", with_grad, Kind::kRaw);
    stages.push_back({call.name + "InferenceTensor",
                      "inference tensor",
                      [call](World& world) { install_inference_tensors(call, world); },
                      {std::begin(kReachedKinds), std::end(kReachedKinds)}});
  }
  return stages;
}

INSTANTIATE_TEST_SUITE_P(Misfit, FailedCallTest, ::testing::ValuesIn(cases_of(misfits())), name_of_case);

// --- Exceptions of every type, from forward and from the body of a guard

struct Thrower {
  std::string name;
  std::string thrown;
  std::function<void()> raise;
};

const Thrower kThrowers[] = {
    {"RuntimeError", "std::runtime_error: user", [] { throw std::runtime_error("user"); }},
    {"BadAlloc", "std::bad_alloc", [] { throw std::bad_alloc(); }},
    {"C10Error", "c10::Error: user", [] { TORCH_CHECK(false, "user"); }},
    {"C10NotImplemented", "c10::NotImplementedError", [] { TORCH_CHECK_NOT_IMPLEMENTED(false, "user"); }},
    {"Number", "int: 7", [] { throw 7; }},
};

void call_forward(World& world) { functional_call(world.module(), world.leaves(), world.x()); }

Stages user_exceptions() {
  Stages stages;
  for (const Thrower& thrower : kThrowers) {
    stages.push_back({"ForwardStart" + thrower.name, thrower.thrown, [thrower](World& world) {
                        world.module().at_start = thrower.raise;
                        call_forward(world);
                      }});
    stages.push_back({"ForwardEnd" + thrower.name, thrower.thrown, [thrower](World& world) {
                        world.module().at_end = thrower.raise;
                        call_forward(world);
                      }});
    stages.push_back({"GuardBody" + thrower.name, thrower.thrown, [thrower](World& world) {
                        const ToModuleGuard guard(world.guarded(), world.module());
                        world.module().forward(world.x());
                        thrower.raise();
                      }});
  }
  return stages;
}

INSTANTIATE_TEST_SUITE_P(User, FailedCallTest, ::testing::ValuesIn(cases_of(user_exceptions())), name_of_case);

// --- Forward, and functional_call within

/// A function whose backward throws.
struct ThrowsBackward : torch::autograd::Function<ThrowsBackward> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("backward");
  }
};

void run_throwing_backward(const Tensor& x) {
  const c10::InferenceMode no_inference(false);
  const Tensor input = x.clone().set_requires_grad(true);
  ThrowsBackward::apply(input * 2).sum().backward();
}

[[noreturn]] void throw_user() { throw std::runtime_error("user"); }

/// Training BatchNorm writes to its buffers before the end of forward.
void train_and_throw(World& world) {
  world.module().train();
  world.module().at_end = throw_user;
  try {
    functional_call(world.module(), World::copy_of(world.leaves()), world.x());
  } catch (...) {
    world.module().eval();
    throw;
  }
}

/// Forward calls its own module with yet other leaves, once.
void recurse_and_throw(World& world) {
  world.module().at_end = [&world] {
    world.module().at_end = throw_user;
    functional_call(world.module(), World::copy_of(world.leaves()), world.x());
  };
  call_forward(world);
}

/// The outer call goes on after the inner one failed, and has to give what it gives alone.
void recover_inside_and_throw(World& world) {
  const Tensor expected = functional_call(world.module(), world.leaves(), world.x());
  world.module().at_start = [&world] {
    world.module().at_start = nullptr;
    EXPECT_ANY_THROW(functional_call(world.module(), with_unknown_key(world, 0), world.x()));
    world.module().at_end = throw_user;
    EXPECT_ANY_THROW(functional_call(world.module(), World::copy_of(world.leaves()), world.x()));
    world.module().at_end = nullptr;
  };
  EXPECT_TRUE(functional_call(world.module(), world.leaves(), world.x()).equal(expected));
  throw_user();
}

Stages forwards() {
  return {
      {"InputOfAWrongShape", "",
       [](World& world) {
         functional_call(world.module(), world.leaves(), torch::ones({4, 7}, torch::kDouble));
       }},
      {"NoTrees", "expected one tree", [](World& world) { functional_call(world.module(), {}, world.x()); }},
      {"InTraining", "user", train_and_throw},
      {"CallInForwardThrows", "user", recurse_and_throw},
      {"CallInForwardDoesNotFit", "no_such_name",
       [](World& world) {
         world.module().at_end = [&world] { functional_call(world.module(), with_unknown_key(world, 1), world.x()); };
         call_forward(world);
       }},
      {"CallInForwardThrowsAndIsCaught", "user", recover_inside_and_throw},
      {"CallOfASubModuleInForward",
       "user",
       [](World& world) {
         world.module().at_end = [&world] {
           const std::shared_ptr<torch::nn::Module> child = world.module().modules(/*include_self=*/false).back();
           auto linear = std::dynamic_pointer_cast<torch::nn::LinearImpl>(child);
           functional_call(linear, TensorDict({{"weight", torch::zeros_like(linear->weight.detach())}}),
                           torch::ones({1, linear->weight.size(1)}, torch::kDouble));
           throw_user();
         };
         call_forward(world);
       },
       {Kind::kNested, Kind::kRecurrent, Kind::kRaw}},
      {"BackwardInForward", "backward",
       [](World& world) {
         world.module().at_end = [&world] { run_throwing_backward(world.x()); };
         call_forward(world);
       }},
      {"BackwardUnderAGuard", "backward",
       [](World& world) {
         const ToModuleGuard guard(world.guarded(), world.module());
         const c10::InferenceMode no_inference(false);
         ThrowsBackward::apply(world.module().forward(world.x())).sum().backward();
       }},
  };
}

INSTANTIATE_TEST_SUITE_P(Forward, FailedCallTest, ::testing::ValuesIn(cases_of(forwards())), name_of_case);

// --- Nested guards, and bodies that change the module

/// Runs `body` under two guards and throws.
template <typename Body>
void throw_under_two_guards(World& world, Body body) {
  const ToModuleGuard outer(World::copy_of(world.guarded()), world.module());
  world.module().forward(world.x());
  const ToModuleGuard inner(World::copy_of(world.guarded()), world.module());
  body();
  throw_user();
}

/// The last module: a Linear, or the class with annotation itself.
torch::nn::Module& last_module(World& world) { return *world.module().modules().back(); }

internal::TensorRegistry& last_registry(World& world) { return internal::parameter_registry(last_module(world)); }

/// Assigns to the first member handle of the last module.
void assign_first_member(World& world) {
  bool is_first = true;
  internal::slots_of(last_module(world)).visit(last_module(world), [&](std::string_view, Tensor& handle) {
    if (std::exchange(is_first, false)) handle = torch::zeros_like(handle.detach());
  });
}

void register_and_throw(World& world) {
  try {
    throw_under_two_guards(world, [&] { last_module(world).register_parameter("extra", torch::ones({1})); });
  } catch (...) {
    last_registry(world).erase("extra");  // what was registered is documented to stay
    throw;
  }
}

Stages bodies() {
  const std::vector<Kind> reached(std::begin(kReachedKinds), std::end(kReachedKinds));
  return {
      {"NestedBody", "user", [](World& world) { throw_under_two_guards(world, [] {}); }},
      {"NestedConstructorUnknownKey", "no_such_name",
       [](World& world) {
         throw_under_two_guards(world, [&] { ToModuleGuard guard(with_unknown_key(world, 1), world.module()); });
       }},
      {"NestedConstructorWrongShape", "not fit",
       [](World& world) {
         throw_under_two_guards(world, [&] {
           ToModuleGuard guard(with(world, name_at(world, 0), torch::ones({9, 9})), world.module());
         });
       }},
      {"NestedForward", "user",
       [](World& world) {
         world.module().at_end = [&world] {
           world.module().at_end = throw_user;
           call_forward(world);
         };
         throw_under_two_guards(world, [&] { call_forward(world); });
       }},
      {"BodyRegisters", "user", register_and_throw},
      {"BodyUnregisters", "user",
       [](World& world) {
         throw_under_two_guards(world, [&] { last_registry(world).erase(last_registry(world)[0].key()); });
       }},
      {"BodyReplacesAnEntry", "user",
       [](World& world) {
         throw_under_two_guards(world, [&] { last_registry(world)[0].value() = torch::ones({1}); });
       }},
      {"BodyReordersEntries", "user",
       [](World& world) {
         throw_under_two_guards(world, [&] {
           auto& registry = last_registry(world);
           const auto item = registry[0];
           registry.erase(item.key());
           registry.insert(item.key(), item.value());
         });
       }},
      {"BodyAssignsAMember", "user",
       [](World& world) { throw_under_two_guards(world, [&] { assign_first_member(world); }); }},
      {"BodyAssignsAMemberThenGuardRefuses", "registered nowhere",
       [](World& world) {
         throw_under_two_guards(world, [&] {
           assign_first_member(world);
           ToModuleGuard guard(world.guarded(), world.module());
         });
       }},
      {"BodyWritesForGood", "user",
       [](World& world) {
         throw_under_two_guards(world, [&] { to_module(World::copy_of(world.guarded()), world.module()); });
       }},
      {"BodyCasts", "", [](World& world) { throw_under_two_guards(world, [&] { world.module().to(torch::kFloat); }); },
       reached},
      {"BodyZeroesGradients", "user",
       [](World& world) { throw_under_two_guards(world, [&] { world.module().zero_grad(); }); }, reached},
  };
}

INSTANTIATE_TEST_SUITE_P(Body, FailedCallTest, ::testing::ValuesIn(cases_of(bodies())), name_of_case);

// --- What one call learns of a module must not outlive its being so

TEST(StalePlanTest, AMemberThatWasSetRightIsAcceptedAgain) {
  World world(Kind::kRaw);
  auto linear = std::dynamic_pointer_cast<torch::nn::LinearImpl>(world.module().modules().back());
  const Tensor registered = linear->weight;
  const TensorDict leaves({{"weight", torch::zeros_like(registered.detach())}});
  linear->weight = torch::ones_like(registered);
  EXPECT_THROW(to_module(leaves, *linear), c10::ValueError);
  linear->weight = registered;
  const ToModuleGuard guard(leaves, *linear);
  EXPECT_TRUE(linear->weight.equal(leaves["weight"]));
}

TEST(StalePlanTest, ATieThatAGuardHidIsSeenAgain) {
  World world(Kind::kNested);
  try {
    const TensorDict bias({{"encoder.bias", torch::ones({4}, torch::kDouble)}});
    const ToModuleGuard guard(bias, world.module());
    to_module(bias, world.module());
    call_forward(world);
    throw_user();
  } catch (const std::runtime_error&) {
  }
  const TensorDict conflict = with(world, "tied.0", torch::ones({4}, torch::kDouble));
  EXPECT_THROW(functional_call(world.module(), conflict, world.x()), c10::ValueError);
}

}  // namespace
}  // namespace graft::testing
