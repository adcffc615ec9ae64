// Each way to install leaves with each way to differentiate: what reaches the leaves is the derivative of a plain
// module that holds their values, found by central differences. Pairs that cannot work are listed with what they say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/script_module.h"
#include "functional/slots.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tensordict/autograd.h"
#include "tensordict/global_reduce.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

using torch::nn::Linear;
using Forward = std::function<Tensor(const TensorDict&, const Tensor&)>;

struct RawImpl : torch::nn::Module {
  RawImpl() {
    w = register_parameter("w", torch::randn({3}));
    v = register_parameter("v", torch::randn({3, 2}));
  }
  Tensor forward(const Tensor& x) { return torch::tanh(torch::tanh(x * w).matmul(v)); }
  Tensor w, v;
};

struct LstmImpl : torch::nn::Module {
  LstmImpl() { lstm = register_module("lstm", torch::nn::LSTM(3, 2)); }
  /// A sequence of two, so that the recurrent weights matter.
  Tensor forward(const Tensor& x) { return std::get<0>(lstm(torch::stack({x, 0.5 * x})))[1]; }
  torch::nn::LSTM lstm = nullptr;
};

struct LayersImpl : torch::nn::Module {
  LayersImpl() {
    first = register_module("first", Linear(3, 3));
    second = register_module("second", Linear(3, 2));
  }
  Tensor forward(const Tensor& x) { return torch::tanh(second(torch::tanh(first(x)))); }
  Linear first = nullptr, second = nullptr;
};

}  // namespace

class AnnotatedLayersImpl : public torch::nn::Module {
 public:
  AnnotatedLayersImpl() {
    scale_ = register_parameter("scale", torch::randn({3}));
    for (int i = 0; i < 2; ++i) layers_.push_back(register_parameter("v" + std::to_string(i), torch::randn({3, 3})));
  }
  Tensor forward(const Tensor& x) {
    return torch::tanh(torch::tanh((x * scale_).matmul(layers_[0])).matmul(layers_[1]));
  }

 private:
  Tensor scale_;
  std::vector<Tensor> layers_;
};

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::AnnotatedLayersImpl, scale_, layers_)

namespace graft::testing {
namespace {

/// A way to install leaves.
struct Mechanism {
  TensorDict leaves;  ///< in double; none requires grad
  Forward forward;    ///< [b, 3] -> [b, k], with leaves that Graft installs
  Forward plain;      ///< the same with values that plain LibTorch copies
};

template <typename Impl>
std::shared_ptr<Impl> make() {
  auto module = std::make_shared<Impl>();
  module->to(torch::kDouble);
  return module;
}

/// Copies the leaves into the parameters of a module of its own, then calls that.
template <typename Parameters, typename Call>
Forward plain_forward(Parameters parameters, Call call) {
  return [parameters, call](const TensorDict& leaves, const Tensor& x) {
    const torch::NoGradGuard no_grad;
    parameters([&](const std::string& path, Tensor parameter) { parameter.copy_(leaves[path]); });
    return call(x);
  };
}

template <typename Impl>
Mechanism mechanism(std::function<Tensor(Impl&, const TensorDict&, const Tensor&)> forward) {
  const auto module = make<Impl>();
  const auto other = make<Impl>();
  TensorDict leaves =
      from_module(*module, State::kParameters).map([](const Tensor& leaf) { return torch::randn_like(leaf.detach()); });
  const auto parameters = [other](const auto& visit) {
    for (const auto& item : other->named_parameters()) visit(item.key(), item.value());
  };
  return {.leaves = std::move(leaves),
          .forward = [=](const TensorDict& tree, const Tensor& x) { return forward(*module, tree, x); },
          .plain = plain_forward(parameters, [other](const Tensor& x) { return other->forward(x); })};
}

template <typename Impl>
Mechanism by_guard(const ToModuleOptions& options = {}) {
  return mechanism<Impl>([options](Impl& module, const TensorDict& leaves, const Tensor& x) {
    const ToModuleGuard guard(leaves, module, options);
    return module.forward(x);
  });
}

template <typename Impl>
Mechanism by_call() {
  return mechanism<Impl>(
      [](Impl& module, const TensorDict& leaves, const Tensor& x) { return functional_call(module, leaves, x); });
}

template <typename Impl>
Mechanism for_good() {
  return mechanism<Impl>([](Impl& module, const TensorDict& leaves, const Tensor& x) {
    const auto old = to_module(leaves, module);
    const Tensor y = module.forward(x);
    to_module(*old, module, {.preserve_module_state = false});
    return y;
  });
}

/// The leaves pass through a TensorDictParams on their way to the module.
Mechanism through_params() {
  const TensorDictParams params(from_module(*make<LayersImpl>(), State::kParameters));
  return mechanism<LayersImpl>([params](LayersImpl& module, const TensorDict& leaves, const Tensor& x) {
    const ToModuleGuard guard(leaves, *params.ptr());
    return functional_call(module, params->tree(), x);
  });
}

/// `installs`: by a guard, else by functional_call.
Mechanism by_script(bool installs) {
  const auto load = [] { return torch::jit::load("tests/functional/script_models/mlp.pt"); };
  torch::jit::Module module = load();
  torch::jit::Module other = load();
  // Lets TorchScript specialise its code, as it does for a module in use.
  const Tensor x = torch::randn({2, 3}, torch::kDouble);
  for (int i = 0; i < 3; ++i) module.forward({x}).toTensor().sum().backward();
  for (const Tensor& parameter : module.parameters()) parameter.mutable_grad().reset();
  const auto parameters = [other](const auto& visit) {
    for (const auto& item : other.named_parameters()) visit(item.name, item.value);
  };
  TensorDict leaves =
      from_module(module, State::kParameters).map([](const Tensor& leaf) { return torch::randn_like(leaf.detach()); });
  return {.leaves = std::move(leaves),
          .forward =
              [module, installs](const TensorDict& tree, const Tensor& sample) {
                if (!installs) return functional_call(module, tree, sample);
                const ToModuleGuard guard(tree, module);
                return functional_call(module, TensorDict(), sample);
              },
          .plain = plain_forward(parameters, [other](const Tensor& sample) {
            return torch::jit::Module(other).forward({sample}).toTensor();
          })};
}

// --- Derivatives by differences

using Loss = std::function<double(const TensorDict&)>;

Tensor loss_of(const Forward& forward, const TensorDict& leaves, const Tensor& x) {
  return forward(leaves, x.dim() == 1 ? x.unsqueeze(0) : x).square().sum();
}

Loss plain_loss(const Mechanism& mechanism, const Tensor& x) {
  return [&mechanism, x](const TensorDict& leaves) { return loss_of(mechanism.plain, leaves, x).item<double>(); };
}

TensorDict copies(const TensorDict& tree) {
  return tree.map([](const Tensor& leaf) { return leaf.detach().clone(); });
}

/// tree + factor * direction
TensorDict moved(const TensorDict& tree, const TensorDict& direction, double factor) {
  std::size_t next = 0;
  return tree.map([&](const Tensor& leaf) { return leaf.detach() + factor * direction.values()[next++]; });
}

double slope(const std::function<double(double)>& f, double step) { return (f(step) - f(-step)) / (2 * step); }

/// The derivative of `f(leaves)` with respect to each element, [...] for each leaf.
TensorDict differences(const Loss& f, const TensorDict& at, double step = 1e-5) {
  const TensorDict point = copies(at);
  return point.map([&](const Tensor& leaf) {
    Tensor gradient = torch::empty_like(leaf);
    for (int64_t i = 0; i < leaf.numel(); ++i) {
      double& element = leaf.data_ptr<double>()[i];
      const double value = element;
      gradient.data_ptr<double>()[i] = slope([&](double change) { return element = value + change, f(point); }, step);
      element = value;
    }
    return gradient;
  });
}

TensorDict directions(const TensorDict& tree) {
  torch::manual_seed(7);
  return tree.map([](const Tensor& leaf) { return torch::randn_like(leaf.detach()); });
}

/// The derivative of the gradient along a direction: the Hessian times it.
TensorDict second_differences(const Loss& f, const TensorDict& at, const TensorDict& along) {
  constexpr double kStep = 1e-3;
  return differences(
      [&](const TensorDict& point) { return slope([&](double t) { return f(moved(point, along, t)); }, kStep); }, at,
      kStep);
}

void expect_near(const TensorDict& got, const TensorDict& expected, double tolerance = 1e-7) {
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [path, value] : expected.leaves()) {
    EXPECT_GT(value.abs().max().item<double>(), 1e-4) << path;  // else it shows nothing
    EXPECT_TRUE(got[path].allclose(value, tolerance, tolerance)) << path << got[path] << value;
  }
}

// --- The ways to differentiate

TensorDict with_grad(const TensorDict& leaves) {
  return leaves.map([](const Tensor& leaf) { return leaf.detach().clone().requires_grad_(); });
}

Tensor inputs() {
  torch::manual_seed(3);
  return torch::randn({2, 3}, torch::kDouble);
}

auto loss_in(const Mechanism& mechanism) {
  return [&mechanism](const TensorDict& leaves, const Tensor& x) { return loss_of(mechanism.forward, leaves, x); };
}

void by_backward(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict leaves = with_grad(mechanism.leaves);
  loss_of(mechanism.forward, leaves, x).backward();
  const auto gradient_of = [](const Tensor& leaf) {
    if (!leaf.grad().defined()) throw std::runtime_error("no gradient has reached a leaf");
    return leaf.grad();
  };
  expect_near(leaves.map(gradient_of), differences(plain_loss(mechanism, x), leaves));
}

void by_autograd(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict leaves = with_grad(mechanism.leaves);
  const TensorDict gradients = graft::gradients(loss_of(mechanism.forward, leaves, x), leaves);
  expect_near(gradients, differences(plain_loss(mechanism, x), leaves));
}

/// A leaf that depends on others.
void by_autograd_beyond_leaves(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict roots = with_grad(mechanism.leaves);
  const auto leaves_of = [](const TensorDict& tree) { return tree.map([](const Tensor& root) { return root.sin(); }); };
  const TensorDict gradients = graft::gradients(loss_of(mechanism.forward, leaves_of(roots), x), roots);
  const Loss plain = plain_loss(mechanism, x);
  expect_near(gradients, differences([&](const TensorDict& tree) { return plain(leaves_of(tree)); }, roots));
}

void by_grad(const Mechanism& mechanism) {
  const Tensor x = inputs();
  expect_near(grad(loss_in(mechanism))(mechanism.leaves, x), differences(plain_loss(mechanism, x), mechanism.leaves));
}

void by_duals(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict along = directions(mechanism.leaves);
  const uint64_t level = torch::autograd::ForwardADLevel::get_next_idx();
  struct Level {
    uint64_t number;
    ~Level() { torch::autograd::ForwardADLevel::release_idx(number); }
  } const scope{level};
  std::size_t next = 0;
  const TensorDict duals = mechanism.leaves.map(
      [&](const Tensor& leaf) { return at::_make_dual(leaf, along.values()[next++], static_cast<int64_t>(level)); });
  const Tensor loss = loss_of(mechanism.forward, duals, x);
  const Tensor tangent = std::get<1>(at::_unpack_dual(loss, static_cast<int64_t>(level)));
  ASSERT_TRUE(tangent.defined());
  const Loss plain = plain_loss(mechanism, x);
  const double expected = slope([&](double t) { return plain(moved(mechanism.leaves, along, t)); }, 1e-5);
  EXPECT_NEAR(tangent.item<double>(), expected, 1e-7);
}

/// Through a forward with two sets of leaves at once.
void by_backward_through_vmap(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict along = directions(mechanism.leaves);
  std::size_t next = 0;
  const TensorDict stacked = mechanism.leaves.map([&](const Tensor& leaf) {
    return torch::stack({leaf, leaf + along.values()[next++]}).requires_grad_();
  });
  const auto forward = [&](const TensorDict& leaves, const Tensor& all) { return mechanism.forward(leaves, all); };
  const Tensor y = vmap(forward, {.in_dims = {0, std::nullopt}})(stacked, x);
  const TensorDict gradients = graft::gradients(y.square().sum(), stacked);
  for (int64_t member = 0; member < 2; ++member) {
    const auto select = [&](const TensorDict& tree) {
      return tree.map([&](const Tensor& leaf) { return leaf.detach()[member].contiguous(); });
    };
    EXPECT_TRUE(y.detach()[member].allclose(mechanism.plain(select(stacked), x)));
    expect_near(select(gradients), differences(plain_loss(mechanism, x), select(stacked)));
  }
}

void by_vmap_of_grad(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict all = vmap(grad(loss_in(mechanism)), {.in_dims = {std::nullopt, 0}})(mechanism.leaves, x);
  for (int64_t i = 0; i < x.size(0); ++i) {
    TensorDict one = mechanism.leaves;
    for (const auto& [path, gradient] : all.leaves()) one.set(path, gradient[i]);
    expect_near(one, differences(plain_loss(mechanism, x[i]), mechanism.leaves));
  }
}

void by_grad_of_vmap(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const auto loss = [&](const TensorDict& leaves, const Tensor& all) {
    return vmap(loss_in(mechanism), {.in_dims = {std::nullopt, 0}})(leaves, all).sum();
  };
  expect_near(grad(loss)(mechanism.leaves, x), differences(plain_loss(mechanism, x), mechanism.leaves));
}

void by_autograd_twice(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict along = directions(mechanism.leaves);
  const TensorDict leaves = with_grad(mechanism.leaves);
  const TensorDict first = gradients(loss_of(mechanism.forward, leaves, x), leaves, {.create_graph = true});
  const TensorDict second = gradients(dot(first, along), leaves);
  expect_near(second, second_differences(plain_loss(mechanism, x), leaves, along), 1e-4);
}

void by_grad_of_grad(const Mechanism& mechanism) {
  const Tensor x = inputs();
  const TensorDict along = directions(mechanism.leaves);
  const auto slope_along = [&](const TensorDict& leaves, const Tensor& all) {
    return dot(grad(loss_in(mechanism))(leaves, all), along);
  };
  expect_near(grad(slope_along)(mechanism.leaves, x),
              second_differences(plain_loss(mechanism, x), mechanism.leaves, along), 1e-4);
}

// --- The table

struct Way {
  std::string name;
  void (*check)(const Mechanism&);
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

const std::vector<Way>& ways() {
  static const std::vector<Way> all = {
      {"Backward", by_backward},
      {"Autograd", by_autograd},
      {"AutogradBeyondLeaves", by_autograd_beyond_leaves},
      {"Grad", by_grad},
      {"Duals", by_duals},
      {"BackwardThroughVmap", by_backward_through_vmap},
      {"VmapOfGrad", by_vmap_of_grad},
      {"GradOfVmap", by_grad_of_vmap},
      {"AutogradTwice", by_autograd_twice},
      {"GradOfGrad", by_grad_of_grad},
  };
  return all;
}

struct NamedMechanism {
  std::string name;
  Mechanism (*make)();
};

void PrintTo(const NamedMechanism& mechanism, std::ostream* out) { *out << mechanism.name; }

const std::vector<NamedMechanism>& mechanisms() {
  static const std::vector<NamedMechanism> all = {
      {"Guard", [] { return by_guard<LayersImpl>(); }},
      {"GuardAsTheyAre", [] { return by_guard<LayersImpl>({.preserve_module_state = false}); }},
      {"GuardOnLstm", [] { return by_guard<LstmImpl>(); }},
      {"GuardOnAnnotated", [] { return by_guard<AnnotatedLayersImpl>(); }},
      {"GuardOnUnknown", [] { return by_guard<RawImpl>(); }},
      {"GuardInPlace", [] { return by_guard<LayersImpl>({.inplace = true}); }},
      {"GuardWithLoad", [] { return by_guard<LayersImpl>({.use_state_dict = true}); }},
      {"Rebind", [] { return by_call<LayersImpl>(); }},
      {"RebindOfLstm", [] { return by_call<LstmImpl>(); }},
      {"Redirect", [] { return by_call<RawImpl>(); }},
      {"Params", [] { return through_params(); }},
      {"Script", [] { return by_script(/*installs=*/false); }},
      {"GuardOnScript", [] { return by_script(/*installs=*/true); }},
      {"ForGood", [] { return for_good<LayersImpl>(); }},
      {"ForGoodInLstm", [] { return for_good<LstmImpl>(); }},
      {"ForGoodInAnnotated", [] { return for_good<AnnotatedLayersImpl>(); }},
      {"ForGoodInUnknown", [] { return for_good<RawImpl>(); }},
  };
  return all;
}

/// Why a pair cannot work, as a part of what it throws; "" for one that works.
std::string refusal(const std::string& mechanism, const std::string& way) {
  const bool maps = way.find("Vmap") != std::string::npos;
  const bool transforms = maps || way.starts_with("Grad");
  if (mechanism == "GuardOnUnknown") return "write GRAFT_SLOTS";               // nobody knows what forward reads
  if (mechanism == "ForGoodInUnknown") return "the leaf carries derivatives";  // only data can be shared
  if (mechanism == "GuardInPlace") {  // values alone, which are gone when the guard ends
    if (transforms) return "inplace is not possible inside";
    if (way == "Duals") return "a copy in place would lose";
    return way == "Backward" ? "modified by an inplace operation" : "do not depend on these inputs";
  }
  if (mechanism == "GuardWithLoad") {  // values alone, as the option says
    if (transforms || way == "Duals") return "an archive, which cannot hold";
    return way == "Backward" ? "no gradient has reached a leaf" : "do not depend on these inputs";
  }
  return "";
}

class GradientsReachLeavesTest : public ::testing::TestWithParam<std::tuple<NamedMechanism, Way>> {};

TEST_P(GradientsReachLeavesTest, AsOfAPlainModule) {
  torch::manual_seed(0);
  const NamedMechanism& named = std::get<0>(GetParam());
  const Way& way = std::get<1>(GetParam());
  const Mechanism mechanism = named.make();
  const std::string reason = refusal(named.name, way.name);
  const auto check = [&] { way.check(mechanism); };
  if (reason.empty()) {
    check();
  } else {
    EXPECT_THAT(check, ::testing::ThrowsMessage<std::exception>(::testing::HasSubstr(reason)));
  }
}

INSTANTIATE_TEST_SUITE_P(EachWith, GradientsReachLeavesTest,
                         ::testing::Combine(::testing::ValuesIn(mechanisms()), ::testing::ValuesIn(ways())),
                         [](const auto& pair) {
                           return std::get<0>(pair.param).name + "By" + std::get<1>(pair.param).name;
                         });

}  // namespace
}  // namespace graft::testing
