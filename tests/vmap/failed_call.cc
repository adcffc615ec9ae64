#include "tests/vmap/failed_call.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <map>
#include <set>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "functional/to_module.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

using torch::nn::Linear;
using torch::nn::LinearOptions;

constexpr double kTolerance = 1e-12;

struct NestedModule : TestModule {
  NestedModule() {
    body = register_module("body", torch::nn::Sequential(Linear(3, 4), torch::nn::Tanh(), torch::nn::BatchNorm1d(4)));
    encoder = register_module("encoder", Linear(4, 4));
    decoder = register_module("decoder", Linear(4, 4));
    decoder->weight = encoder->weight;  // its own entry goes stale
    tied = register_module("tied", std::make_shared<torch::nn::ParameterListImpl>());
    tied->append(encoder->bias);
    out = register_module("out", Linear(LinearOptions(4, 2).bias(false)));
  }
  Tensor compute(const Tensor& x) override { return out(decoder(torch::tanh(encoder(body->forward(x)))) * (*tied)[0]); }
  torch::nn::Sequential body = nullptr;
  Linear encoder = nullptr, decoder = nullptr, out = nullptr;
  std::shared_ptr<torch::nn::ParameterListImpl> tied;
};

struct RecurrentModule : TestModule {
  RecurrentModule() {
    lstm = register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(3, 4).num_layers(2)));
    head = register_module("head", Linear(4, 4));
    register_module("again", head);
  }
  Tensor compute(const Tensor& x) override {
    return head(torch::tanh(head(std::get<0>(lstm(x.unsqueeze(0))).squeeze(0))));
  }
  torch::nn::LSTM lstm = nullptr;
  Linear head = nullptr;
};

struct RawModule : TestModule {
  RawModule() {
    w = register_parameter("w", torch::randn({3}));
    shift = register_buffer("shift", torch::randn({3}));
    fc = register_module("fc", Linear(3, 2));
  }
  Tensor compute(const Tensor& x) override { return fc(torch::stack({x * w, shift.expand_as(x)}).sum(0)); }
  Tensor w, shift;
  Linear fc = nullptr;
};

}  // namespace

class AnnotatedModule : public TestModule {
 public:
  AnnotatedModule() {
    w_ = register_parameter("w", torch::randn({3}));
    for (int i = 0; i < 2; ++i) layers_.push_back(register_parameter("v" + std::to_string(i), torch::randn({3, 3})));
    shift_ = register_buffer("shift", torch::randn({3}));
  }
  Tensor compute(const Tensor& x) override {
    return torch::tanh((x * w_ + *shift_).matmul(layers_[0])).matmul(layers_[1]);
  }

 private:
  Tensor w_;
  std::vector<Tensor> layers_;
  std::optional<Tensor> shift_;
};

}  // namespace graft::testing

GRAFT_SLOTS(graft::testing::AnnotatedModule, w_, layers_, shift_)

namespace graft::testing {
namespace {

template <typename Module>
std::shared_ptr<TestModule> make() {
  auto module = std::make_shared<Module>();
  module->to(torch::kDouble);
  module->eval();
  return module;
}

/// Returns `tree` with `change(tensor)` for each tensor; one that has several names is changed once.
template <typename Change>
TensorDict map_distinct(const TensorDict& tree, Change change) {
  std::map<const at::TensorImpl*, Tensor> changed;
  return tree.map([&](const Tensor& tensor) {
    Tensor& value = changed[tensor.unsafeGetTensorImpl()];
    if (!value.defined()) value = change(tensor);
    return value;
  });
}

/// Other values for every tensor: positive, as a variance has to be.
TensorDict other_leaves(torch::nn::Module& module) {
  return map_distinct(from_module(module), [](const Tensor& tensor) {
    return tensor.is_floating_point() ? torch::rand_like(tensor.detach()) + 0.1 : tensor.clone();
  });
}

/// Leaves of the parameters, without the further names of one tensor.
TensorDict distinct_params(torch::nn::Module& module, const TensorDict& leaves) {
  std::set<const at::TensorImpl*> seen;
  TensorDict distinct;
  for (const auto& [path, tensor] : from_module(module, State::kParameters).leaves()) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) distinct.set(path, leaves[path]);
  }
  return distinct;
}

/// A module of the same class that owns the values of `leaves`.
std::shared_ptr<TestModule> make_twin(Kind kind, const TensorDict& leaves) {
  const torch::NoGradGuard no_grad;
  std::shared_ptr<TestModule> twin = make_module(kind);
  for (const auto& item : twin->named_parameters()) Tensor(item.value()).copy_(leaves[item.key()]);
  for (const auto& item : twin->named_buffers()) Tensor(item.value()).copy_(leaves[item.key()]);
  return twin;
}

/// The gradients of `loss(module.forward(x[i]))` for each i, by backward passes, stacked.
TensorDict loop_of_backwards(TestModule& module, const TensorDict& params, const Tensor& x) {
  TensorDict own;
  for (const auto& [path, leaf] : params.leaves()) own.set(path, from_module(module)[path]);
  std::vector<std::vector<Tensor>> samples(own.size());
  for (int64_t i = 0; i < x.size(0); ++i) {
    const Tensor loss = module.forward(x[i].unsqueeze(0)).square().sum();
    const auto gradients = torch::autograd::grad({loss}, own.values(), {}, {}, /*create_graph=*/false,
                                                 /*allow_unused=*/true);
    for (std::size_t k = 0; k < own.size(); ++k) {
      samples[k].push_back(gradients[k].defined() ? gradients[k] : torch::zeros_like(own.values()[k]));
    }
  }
  std::size_t next = 0;
  TensorDict stacked = own.map([&](const Tensor&) { return torch::stack(samples[next++]); });
  stacked.set_batch_size({x.size(0)});
  return stacked;
}

void expect_near(const Tensor& got, const Tensor& expected, const char* call) {
  EXPECT_TRUE(got.allclose(expected, kTolerance, kTolerance)) << call;
}

}  // namespace

std::shared_ptr<TestModule> make_module(Kind kind) {
  switch (kind) {
    case Kind::kNested:
      return make<NestedModule>();
    case Kind::kRecurrent:
      return make<RecurrentModule>();
    case Kind::kAnnotated:
      return make<AnnotatedModule>();
    case Kind::kRaw:
      return make<RawModule>();
  }
  return nullptr;
}

World::World(Kind kind) : kind_(kind) {
  torch::manual_seed(0);
  module_ = make_module(kind);
  x_ = torch::randn({4, 3}, torch::kDouble);
  leaves_ = other_leaves(*module_);
  params_ = distinct_params(*module_, leaves_);
  own_output_ = module_->forward(x_).detach();
  const std::shared_ptr<TestModule> twin = make_twin(kind, leaves_);
  leaf_output_ = twin->forward(x_).detach();
  // The gradient is that of the parameters, beside the module's own buffers.
  TensorDict with_own_buffers = leaves_;
  for (const auto& [path, buffer] : from_module(*module_, State::kBuffers).leaves()) with_own_buffers.set(path, buffer);
  sample_gradients_ = loop_of_backwards(*make_twin(kind, with_own_buffers), params_, x_);
}

TensorDict World::guarded() const {
  if (kind_ != Kind::kRaw) return leaves_;
  TensorDict known;
  known.set("fc", leaves_.subtree("fc"));
  return known;
}

TensorDict World::copy_of(const TensorDict& tree) {
  return map_distinct(tree, [](const Tensor& tensor) { return tensor.clone(); });
}

Tensor loss_of(TestModule& module, const TensorDict& params, const Tensor& x) {
  return functional_call(module, params, x.dim() == 1 ? x.unsqueeze(0) : x).square().sum();
}

void World::expect_right_values() {
  const Snapshot before(*module_);
  expect_near(module_->forward(x_), own_output_, "forward");
  expect_near(functional_call(*module_, leaves_, x_), leaf_output_, "functional_call");
  if (kind_ != Kind::kRaw) {
    const ToModuleGuard guard(leaves_, *module_);
    expect_near(module_->forward(x_), leaf_output_, "guard");
  }
  const auto loss = [&](const TensorDict& p, const Tensor& sample) { return loss_of(*module_, p, sample); };
  const TensorDict one = grad(loss)(params_, x_[0]);
  for (const auto& [path, gradient] : one.leaves()) expect_near(gradient, sample_gradients_[path][0], "grad");
  if (kind_ != Kind::kRecurrent) {
    const TensorDict all = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params_, x_);
    EXPECT_THAT(all, TensorDictNear(sample_gradients_, kTolerance)) << "vmap of grad";
  }
  EXPECT_EQ(before.changes_to(Snapshot(*module_)), "") << "after calls that are right";
}

std::string thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const c10::Error& error) {
    return c10::demangle(typeid(error).name()) + ": " + error.what_without_backtrace();
  } catch (const std::exception& error) {
    return c10::demangle(typeid(error).name()) + ": " + error.what();
  } catch (int number) {
    return "int: " + std::to_string(number);
  }
  return "nothing";
}

std::vector<Case> cases_of(const std::vector<Stage>& stages) {
  std::vector<Case> cases;
  for (const Stage& stage : stages) {
    for (const Kind kind : stage.kinds) {
      for (const Mode mode : {Mode::kGrad, Mode::kNoGrad, Mode::kInference}) cases.push_back({stage, kind, mode});
    }
  }
  return cases;
}

std::string name_of_case(const ::testing::TestParamInfo<Case>& info) {
  static constexpr const char* kKindNames[] = {"Nested", "Recurrent", "Annotated", "Raw"};
  static constexpr const char* kModeNames[] = {"Grad", "NoGrad", "Inference"};
  return info.param.stage.name + "On" + kKindNames[static_cast<int>(info.param.kind)] + "Under" +
         kModeNames[static_cast<int>(info.param.mode)];
}

// The tensors are too small for threads to pay.
void FailedCallTest::SetUpTestSuite() { torch::set_num_threads(1); }

// The second round fails with whatever the first one and the right calls left in caches.
TEST_P(FailedCallTest, LeavesModuleAndThreadAsTheyWere) {
  const Case& param = GetParam();
  World world(param.kind);
  for (int round = 0; round < 2; ++round) {
    {
      const c10::AutoGradMode grad_mode(param.mode == Mode::kGrad);
      std::optional<c10::InferenceMode> inference;
      if (param.mode == Mode::kInference) inference.emplace();
      const Snapshot before(world.module());
      const std::string thrown = thrown_by([&] { param.stage.fail(world); });
      EXPECT_NE(thrown, "nothing");
      EXPECT_THAT(thrown, ::testing::HasSubstr(param.stage.thrown));
      EXPECT_EQ(before.changes_to(Snapshot(world.module())), "") << "round " << round;
      world.module().at_start = world.module().at_end = nullptr;
      world.expect_right_values();
    }
    world.expect_right_values();
  }
}

}  // namespace graft::testing
