// grad, vmap and nests of them that fail at every depth, with modules inside: the module and the thread are as before.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/to_module.h"
#include "tensordict/global_reduce.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/vmap/failed_call.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

using Loss = std::function<Tensor(const TensorDict&, const Tensor&)>;
using Hook = std::function<void()>;

const VmapOptions kOverSamples{.in_dims = {std::nullopt, 0}};

[[noreturn]] void throw_user() { throw std::runtime_error("user"); }

/// A nest of transforms around a loss; `after_inner` runs in the outer function, if there are two.
struct Nest {
  std::string name;
  bool is_grad_innermost;
  bool has_vmap;
  bool has_two;
  std::function<TensorDict(const Loss&, const TensorDict&, const Tensor&, const Hook& after_inner)> run;
};

const Nest kNests[] = {
    {"Grad", true, false, false,
     [](const Loss& loss, const TensorDict& params, const Tensor& x, const Hook&) { return grad(loss)(params, x); }},
    {"Vmap", false, true, false,
     [](const Loss& loss, const TensorDict& params, const Tensor& x, const Hook&) {
       return TensorDict({{"loss", vmap(loss, kOverSamples)(params, x)}});
     }},
    {"VmapOfGrad", true, true, true,
     [](const Loss& loss, const TensorDict& params, const Tensor& x, const Hook& after_inner) {
       const auto outer = [&](const TensorDict& p, const Tensor& sample) {
         TensorDict gradient = grad(loss)(p, sample);
         after_inner();
         return gradient;
       };
       return vmap(outer, kOverSamples)(params, x);
     }},
    {"GradOfVmap", false, true, true,
     [](const Loss& loss, const TensorDict& params, const Tensor& x, const Hook& after_inner) {
       const auto outer = [&](const TensorDict& p, const Tensor& samples) {
         const Tensor losses = vmap(loss, kOverSamples)(p, samples);
         after_inner();
         return losses.sum();
       };
       return grad(outer)(params, x);
     }},
    {"GradOfGrad", true, false, true,
     [](const Loss& loss, const TensorDict& params, const Tensor& x, const Hook& after_inner) {
       const auto outer = [&](const TensorDict& p, const Tensor& samples) {
         const TensorDict gradient = grad(loss)(p, samples);
         after_inner();
         return dot(gradient, gradient);
       };
       return grad(outer)(params, x);
     }},
    {"VmapOfGradOfGrad", true, true, true,
     [](const Loss& loss, const TensorDict& params, const Tensor& x, const Hook& after_inner) {
       const auto outer = [&](const TensorDict& p, const Tensor& sample) {
         const TensorDict gradient = grad(loss)(p, sample);
         after_inner();
         return dot(gradient, gradient);
       };
       return vmap(grad(outer), kOverSamples)(params, x);
     }},
};

TensorDict run(
    const Nest& nest, World& world, const Loss& loss, const Hook& after_inner = [] {}) {
  return nest.run(loss, world.params(), world.x(), after_inner);
}

// --- Losses that fail

/// Which nests a loss fails in.
enum class Fails { kAlways, kUnderInnermostGrad, kUnderVmap };

struct FailingLoss {
  std::string name;
  std::string thrown;
  Fails fails;
  std::function<Tensor(World&, const TensorDict&, const Tensor&)> loss;
};

/// The part of `params` that a guard accepts.
TensorDict guarded(const World& world, const TensorDict& params) {
  if (world.kind() != Kind::kRaw) return params;
  TensorDict known;
  known.set("fc", params.subtree("fc"));
  return known;
}

struct ThrowsBackward : torch::autograd::Function<ThrowsBackward> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw std::runtime_error("backward");
  }
};

const FailingLoss kFailingLosses[] = {
    {"ThrowsBeforeUse", "user", Fails::kAlways,
     [](World&, const TensorDict&, const Tensor&) -> Tensor { throw_user(); }},
    {"ThrowsAfterUse", "user", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) -> Tensor {
       loss_of(world.module(), p, x);
       throw_user();
     }},
    {"ThrowsANumber", "int: 7", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) -> Tensor {
       loss_of(world.module(), p, x);
       throw 7;
     }},
    {"ForwardThrowsAtStart", "user", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       world.module().at_start = throw_user;
       return loss_of(world.module(), p, x);
     }},
    {"ForwardThrowsAtEnd", "user", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       world.module().at_end = throw_user;
       return loss_of(world.module(), p, x);
     }},
    {"OperatorThrows", "", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor&) {
       return loss_of(world.module(), p, torch::ones({2, 9}, torch::kDouble));
     }},
    {"TreeDoesNotFit", "no_such_name", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       TensorDict unknown = p;
       unknown.set("no_such_name", x);
       return loss_of(world.module(), unknown, x);
     }},
    {"BodyOfAGuardThrows", "user", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) -> Tensor {
       const ToModuleGuard guard(guarded(world, p), world.module());
       world.module().forward(x.dim() == 1 ? x.unsqueeze(0) : x);
       throw_user();
     }},
    {"GuardInAGuardThrows", "no_such_name", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       const ToModuleGuard outer(World::copy_of(world.guarded()), world.module());
       const ToModuleGuard guard(guarded(world, p), world.module());
       const ToModuleGuard inner(TensorDict({{"no_such_name", x}}), world.module());
       return x.sum();
     }},
    {"CallUnderAGuardThrows", "user", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       const ToModuleGuard guard(world.guarded(), world.module());
       world.module().at_end = throw_user;
       return loss_of(world.module(), p, x);
     }},
    {"IsNoNumber", "expected shape []", Fails::kUnderInnermostGrad,
     [](World& world, const TensorDict& p, const Tensor& x) { return loss_of(world.module(), p, x).unsqueeze(0); }},
    {"IsAnInteger", "floating", Fails::kUnderInnermostGrad,
     [](World&, const TensorDict&, const Tensor&) { return torch::ones({}, torch::kLong); }},
    {"IsUndefined", "undefined", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       loss_of(world.module(), p, x);
       return Tensor();
     }},
    {"BackwardHookThrows", "hook", Fails::kUnderInnermostGrad,
     [](World& world, const TensorDict& p, const Tensor& x) {
       const Tensor loss = loss_of(world.module(), p, x);
       loss.register_hook([](const Tensor&) { throw std::runtime_error("hook"); });
       return loss;
     }},
    {"CustomFunction", "", Fails::kAlways,
     [](World& world, const TensorDict& p, const Tensor& x) {
       return ThrowsBackward::apply(loss_of(world.module(), p, x));  // LibTorch refuses it under transforms
     }},
    {"IsRandom", "andom", Fails::kUnderVmap,
     [](World& world, const TensorDict& p, const Tensor& x) {
       return loss_of(world.module(), p, torch::dropout(x, 0.5, /*train=*/true) + torch::rand_like(x));
     }},
    {"ReadsANumber", "", Fails::kUnderVmap,
     [](World& world, const TensorDict& p, const Tensor& x) {
       return loss_of(world.module(), p, x) * loss_of(world.module(), p, x).item<double>();
     }},
};

bool fails_in(const FailingLoss& loss, const Nest& nest) {
  return loss.fails == Fails::kAlways ||
         (loss.fails == Fails::kUnderInnermostGrad ? nest.is_grad_innermost : nest.has_vmap);
}

std::vector<Stage> losses() {
  std::vector<Stage> stages;
  for (const Nest& nest : kNests) {
    for (const FailingLoss& failing : kFailingLosses) {
      if (!fails_in(failing, nest)) continue;
      stages.push_back({nest.name + failing.name, failing.thrown, [nest, failing](World& world) {
                          run(nest, world,
                              [&](const TensorDict& p, const Tensor& x) { return failing.loss(world, p, x); });
                        }});
    }
    if (!nest.has_two) continue;
    stages.push_back({nest.name + "OuterThrows", "user", [nest](World& world) {
                        const auto loss = [&](const TensorDict& p, const Tensor& x) {
                          return loss_of(world.module(), p, x);
                        };
                        run(nest, world, loss, throw_user);
                      }});
  }
  return stages;
}

INSTANTIATE_TEST_SUITE_P(Loss, FailedCallTest, ::testing::ValuesIn(cases_of(losses())), name_of_case);

// --- Options that do not fit, of a vmap alone and inside grad

struct BadOptions {
  std::string name;
  std::string thrown;
  VmapOptions options;
};

const BadOptions kBadOptions[] = {
    {"InDimOutOfRange", "in_dims=7", {.in_dims = {std::nullopt, 7}}},
    {"InDimsTooFew", "in_dims", {.in_dims = {0}}},
    {"NothingMapped", "no argument is mapped", {.in_dims = std::nullopt}},
    {"SizesDiffer", "different sizes", {.in_dims = 0}},
    {"OutDimOutOfRange", "out_dims=5", {.in_dims = {std::nullopt, 0}, .out_dims = 5}},
    {"OutDimsTooMany", "out_dims", {.in_dims = {std::nullopt, 0}, .out_dims = {0, 0, 0}}},
    {"OutDimNone", "depends on mapped", {.in_dims = {std::nullopt, 0}, .out_dims = std::nullopt}},
};

std::vector<Stage> options() {
  std::vector<Stage> stages;
  for (const BadOptions& bad : kBadOptions) {
    const auto losses_of = [bad](World& world, const TensorDict& p) {
      const auto loss = [&](const TensorDict& q, const Tensor& x) { return loss_of(world.module(), q, x); };
      return vmap(loss, bad.options)(p, world.x());
    };
    stages.push_back({"Vmap" + bad.name, bad.thrown, [losses_of](World& world) { losses_of(world, world.params()); }});
    stages.push_back({"GradOfVmap" + bad.name, bad.thrown, [losses_of](World& world) {
                        grad([&](const TensorDict& p) { return losses_of(world, p).sum(); })(world.params());
                      }});
    stages.push_back({"UnderAGuard" + bad.name, bad.thrown, [losses_of](World& world) {
                        const ToModuleGuard guard(world.guarded(), world.module());
                        losses_of(world, world.params());
                      }});
  }
  return stages;
}

INSTANTIATE_TEST_SUITE_P(Options, FailedCallTest, ::testing::ValuesIn(cases_of(options())), name_of_case);

// --- Other places

/// Backward of a graph from outside, which throws while a transform runs.
void run_outer_backward(World& world) {
  const c10::InferenceMode no_inference(false);
  const Tensor w = torch::ones({3}, torch::kDouble).set_requires_grad(true);
  const Tensor outside = ThrowsBackward::apply(w * 2).sum();
  grad([&](const TensorDict& p, const Tensor& x) {
    const Tensor loss = loss_of(world.module(), p, x);
    return loss * torch::autograd::grad({outside}, {w})[0].sum();
  })(world.params(), world.x());
}

/// Ordinary backward through a gradient that grad computed.
void run_backward_through_grad(World& world) {
  const c10::InferenceMode no_inference(false);
  const TensorDict params = world.params().map([](const Tensor& leaf) { return leaf.clone().set_requires_grad(true); });
  const auto loss = [&](const TensorDict& p, const Tensor& x) { return loss_of(world.module(), p, x); };
  const TensorDict gradient = grad(loss)(params, world.x());
  ThrowsBackward::apply(dot(gradient, gradient)).backward();
}

std::vector<Stage> others() {
  return {
      {"BackwardOfAGraphFromOutside", "backward", run_outer_backward},
      {"BackwardThroughGrad", "backward", run_backward_through_grad},
      {"IntegerArgumentOfGrad", "Long",
       [](World& world) {
         const TensorDict params = world.params().map([](const Tensor& t) { return t.to(torch::kLong); });
         grad([&](const TensorDict& p) { return loss_of(world.module(), p, world.x()); })(params);
       }},
  };
}

INSTANTIATE_TEST_SUITE_P(Other, FailedCallTest, ::testing::ValuesIn(cases_of(others())), name_of_case);

// --- Losses that catch what fails in them, and go on

/// Fails in several ways under the levels that are running, and then returns the loss.
Tensor loss_after_failures(World& world, const TensorDict& p, const Tensor& x) {
  const auto failing = [&](const TensorDict& q, const Tensor& y) -> Tensor {
    loss_of(world.module(), q, y);
    throw_user();
  };
  for (const Nest& nest : kNests) {
    const ToModuleGuard guard(guarded(world, p), world.module());
    const Snapshot before(world.module());
    EXPECT_EQ(thrown_by([&] { nest.run(failing, p, world.x(), [] {}); }), "std::runtime_error: user") << nest.name;
    EXPECT_EQ(before.changes_to(Snapshot(world.module())), "") << nest.name;
  }
  return loss_of(world.module(), p, x);
}

class CaughtFailureTest : public ::testing::TestWithParam<Kind> {};

TEST_P(CaughtFailureTest, DoesNotChangeTheResult) {
  World world(GetParam());
  const auto plain = [&](const TensorDict& p, const Tensor& x) { return loss_of(world.module(), p, x); };
  const auto tried = [&](const TensorDict& p, const Tensor& x) { return loss_after_failures(world, p, x); };
  const Snapshot before(world.module());
  for (const Nest& nest : kNests) {
    EXPECT_THAT(run(nest, world, tried), TensorDictNear(run(nest, world, plain), 0)) << nest.name;
    EXPECT_EQ(before.changes_to(Snapshot(world.module())), "") << nest.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CaughtFailureTest, ::testing::ValuesIn(kAllKinds));

}  // namespace
}  // namespace graft::testing
