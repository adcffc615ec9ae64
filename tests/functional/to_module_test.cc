#include "functional/to_module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "tensordict/map.h"

namespace {

/// A class without annotation.
struct RawImpl : torch::nn::Module {
  RawImpl() { w = register_parameter("w", torch::ones({2})); }
  torch::Tensor forward(const torch::Tensor& x) { return x * w; }
  torch::Tensor w;
};

class AnnotatedImpl : public torch::nn::Module {
 public:
  AnnotatedImpl() {
    w_ = register_parameter("w", torch::ones({2}));
    for (int i = 0; i < 2; ++i) layers_.push_back(register_parameter("v" + std::to_string(i), torch::ones({2})));
    shift_ = register_buffer("shift", torch::zeros({2}));
  }
  torch::Tensor forward(const torch::Tensor& x) { return x * w_ + layers_[0] - layers_[1] + *shift_; }
  void grow() { layers_.push_back(register_parameter("v" + std::to_string(layers_.size()), torch::ones({2}))); }

 private:
  torch::Tensor w_;
  std::vector<torch::Tensor> layers_;
  std::optional<torch::Tensor> shift_;
};

}  // namespace

GRAFT_SLOTS(AnnotatedImpl, w_, layers_, shift_)

namespace graft {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::Tensor;
using torch::nn::Linear;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    fc2 = register_module("fc2", Linear(torch::nn::LinearOptions(4, 2).bias(false)));
    fc2->weight.set_requires_grad(false);
  }
  torch::Tensor forward(const torch::Tensor& x) { return fc2(norm(torch::relu(fc1(x)))); }
  Linear fc1 = nullptr, fc2 = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};

/// Every handle of a module tree with what tells tensors apart, names and order included.
std::vector<std::tuple<std::string, const void*, bool>> snapshot(torch::nn::Module& root) {
  std::vector<std::tuple<std::string, const void*, bool>> handles;
  const auto add_module = [&](const std::string& path, torch::nn::Module& module) {
    const auto add = [&](const std::string& name, const Tensor& tensor) {
      handles.emplace_back(path + "." + name, tensor.unsafeGetTensorImpl(), tensor.defined() && tensor.requires_grad());
    };
    for (const auto& item : internal::parameter_registry(module)) add(item.key(), item.value());
    for (const auto& item : internal::buffer_registry(module)) add("buffer " + item.key(), item.value());
    internal::slots_of(module).visit(
        module, [&](std::string_view member, Tensor& handle) { add("member " + std::string(member), handle); });
  };
  add_module("", root);
  for (const auto& module : root.named_modules("", /*include_self=*/false)) add_module(module.key(), *module.value());
  return handles;
}

TensorDict filled_like(const TensorDict& tree, double value) {
  TensorDict filled = tree;
  for (const auto& [path, leaf] : tree.leaves()) filled.set(path, torch::full_like(leaf.detach(), value));
  return filled;
}

TEST(ToModuleTest, ZeroesALinearAndRestoresIt) {
  Linear module(3, 4);
  const Tensor x = torch::randn({2, 3});
  const Tensor before = module->forward(x);
  const auto handles = snapshot(*module);
  const std::optional<TensorDict> old = to_module(filled_like(from_module(*module), 0), *module);
  EXPECT_TRUE(module->forward(x).eq(0).all().item<bool>());
  ASSERT_TRUE(old.has_value());
  to_module(*old, *module);
  EXPECT_TRUE(module->forward(x).equal(before));
  EXPECT_EQ(snapshot(*module), handles);
}

TEST(ToModuleTest, ReturnsNothingWhenNotAsked) {
  Linear module(3, 4);
  EXPECT_FALSE(to_module(from_module(*module), *module, {.return_swap = false}).has_value());
}

TEST(ToModuleGuardTest, InstallsForTheBlockAlone) {
  NetImpl net;
  net.eval();
  const auto handles = snapshot(net);
  const Tensor x = torch::randn({5, 3});
  NetImpl other;
  other.eval();
  {
    const ToModuleGuard guard(from_module(other), net);
    EXPECT_TRUE(net.forward(x).equal(other.forward(x)));
    EXPECT_NE(snapshot(net), handles);
  }
  EXPECT_EQ(snapshot(net), handles);
}

TEST(ToModuleGuardTest, RestoresWhenTheBodyThrows) {
  NetImpl net;
  const auto handles = snapshot(net);
  EXPECT_THROW(
      {
        const ToModuleGuard guard(filled_like(from_module(net), 1), net);
        throw std::runtime_error("body");
      },
      std::runtime_error);
  EXPECT_EQ(snapshot(net), handles);
}

TEST(ToModuleGuardTest, UnwindsNestedGuards) {
  NetImpl net;
  const auto outside = snapshot(net);
  {
    const ToModuleGuard first(filled_like(from_module(net), 1), net);
    const auto inside = snapshot(net);
    {
      const ToModuleGuard second(filled_like(from_module(net), 2), net);
      EXPECT_EQ(net.fc1->weight[0][0].item<float>(), 2);
    }
    EXPECT_EQ(snapshot(net), inside);
  }
  EXPECT_EQ(snapshot(net), outside);
}

TEST(ToModuleGuardTest, RestoresWhatTheBodyDidToTheModule) {
  NetImpl net;
  const auto handles = snapshot(net);
  {
    const ToModuleGuard guard(filled_like(from_module(net), 1), net);
    net.fc1->weight = torch::zeros({4, 3});
    internal::parameter_registry(*net.fc1).erase("weight");
    net.norm->register_parameter("extra", torch::zeros({1}));
    internal::parameter_registry(*net.norm).erase("extra");
    net.to(torch::kDouble);
  }
  EXPECT_EQ(snapshot(net), handles);
}

TEST(ToModuleGuardTest, KeepsWhatTheBodyRegistered) {
  NetImpl net;
  {
    const ToModuleGuard guard(filled_like(from_module(net), 1), net);
    net.fc1->register_parameter("extra", torch::zeros({1}));
  }
  EXPECT_TRUE(net.fc1->named_parameters().contains("extra"));
  EXPECT_EQ(net.fc1->named_parameters().keys(), (std::vector<std::string>{"weight", "bias", "extra"}));
}

TEST(ToModuleGuardTest, FillsAnEmptySlotAndEmptiesItAgain) {
  NetImpl net;
  const Tensor bias = torch::ones({2});
  {
    const ToModuleGuard guard(TensorDict({{"fc2.bias", bias}}), net);
    EXPECT_TRUE(net.fc2->bias.is_same(bias));
    EXPECT_TRUE(guard.swapped_out().empty());
  }
  EXPECT_FALSE(net.fc2->bias.defined());
}

TEST(ToModuleGuardTest, PreservesFlagsAndSharesStorage) {
  NetImpl net;
  const TensorDict plain = filled_like(from_module(net, State::kParameters), 1);
  const ToModuleGuard guard(plain, net);
  EXPECT_TRUE(net.fc1->weight.requires_grad());
  EXPECT_FALSE(net.fc2->weight.requires_grad());
  EXPECT_EQ(net.fc1->weight.data_ptr(), plain["fc1.weight"].data_ptr());
  EXPECT_TRUE(net.fc2->weight.is_same(plain["fc2.weight"]));
  EXPECT_FALSE(plain["fc1.weight"].requires_grad());
  const auto version = plain["fc1.weight"]._version();
  {
    const torch::NoGradGuard no_grad;
    net.fc1->weight.add_(1);
  }
  EXPECT_GT(plain["fc1.weight"]._version(), version);
}

TEST(ToModuleGuardTest, InstallsLeavesAsTheyAreWhenNotPreserving) {
  NetImpl net;
  const TensorDict plain = filled_like(from_module(net), 1);
  const ToModuleGuard guard(plain, net, {.preserve_module_state = false});
  for (const auto& [path, value] : guard.current().leaves()) EXPECT_TRUE(value.is_same(plain[path])) << path;
  EXPECT_FALSE(net.fc1->weight.requires_grad());
}

TEST(ToModuleGuardTest, LetsGradientsReachLeavesThatRequireThem) {
  NetImpl net;
  TensorDict leaves = filled_like(from_module(net, State::kParameters), 0.5);
  for (const auto& leaf : leaves.values()) leaf.set_requires_grad(true);
  {
    const ToModuleGuard guard(leaves, net);
    net.forward(torch::randn({5, 3})).sum().backward();
  }
  EXPECT_TRUE(leaves["fc1.bias"].grad().defined());
  EXPECT_FALSE(net.fc1->bias.grad().defined());
}

TEST(ToModuleGuardTest, ReadsABufferThatTheBodyReassigned) {
  torch::nn::BatchNorm1d norm(4);
  const ToModuleGuard guard(filled_like(from_module(*norm, State::kBuffers), 0), *norm);
  const Tensor assigned = torch::full({4}, 7);
  norm->running_mean = assigned;
  EXPECT_TRUE(guard.current()["running_mean"].is_same(assigned));
}

TEST(ToModuleErrorTest, ListsEveryLeafAndLeavesTheModule) {
  NetImpl net;
  const auto handles = snapshot(net);
  const TensorDict unknown(
      {{"fc1.weight", torch::ones({4, 3})}, {"fc9.bias", torch::ones({1})}, {"norm", torch::ones({1})}});
  EXPECT_THAT([&] { to_module(unknown, net); },
              ThrowsMessage<c10::IndexError>(
                  AllOf(HasSubstr("fc9.bias"), HasSubstr("it has: fc1, norm, fc2"), HasSubstr("it is a sub-module"))));
  const TensorDict shapes({{"fc1.weight", torch::ones({5, 3})}, {"fc1.bias", torch::ones({1})}});
  EXPECT_THAT([&] { to_module(shapes, net); },
              ThrowsMessage<c10::ValueError>(
                  AllOf(HasSubstr("fc1.weight"), HasSubstr("[5, 3]"), HasSubstr("[4, 3]"), HasSubstr("fc1.bias"))));
  const TensorDict integers({{"fc1.weight", torch::ones({4, 3}, torch::kLong)}});
  EXPECT_THAT([&] { ToModuleGuard guard(integers, net); }, ThrowsMessage<c10::ValueError>(HasSubstr("Long")));
  EXPECT_EQ(snapshot(net), handles);
}

TEST(ToModuleErrorTest, NamesGraftSlotsForAnUnknownClass) {
  RawImpl raw;
  EXPECT_THAT(
      [&] {
        ToModuleGuard guard(TensorDict({{"w", torch::ones({2})}}), raw);
      },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("\"w\""), HasSubstr("GRAFT_SLOTS"), HasSubstr("RawImpl"))));
}

TEST(ToModuleErrorTest, NamesAMemberThatContradictsTheRegistry) {
  Linear module(3, 4);
  module->weight = torch::ones({4, 3});
  EXPECT_THAT(
      [&] {
        ToModuleGuard guard(TensorDict({{"weight", torch::ones({4, 3})}}), *module);
      },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("weight"), HasSubstr("registered nowhere"))));
}

TEST(ToModuleSlotsTest, ReachesPrivateMembersOfAnAnnotatedClass) {
  AnnotatedImpl module;
  const Tensor x = torch::ones({2});
  const auto handles = snapshot(module);
  const TensorDict leaves(
      {{"w", torch::full({2}, 5.)}, {"v0", torch::full({2}, 7.)}, {"shift", torch::full({2}, 100.)}});
  {
    const ToModuleGuard guard(leaves, module);
    EXPECT_EQ(module.forward(x)[0].item<double>(), 5 + 7 - 1 + 100);
  }
  EXPECT_EQ(snapshot(module), handles);
}

TEST(ToModuleInPlaceTest, ExchangesTwoParametersOfTheModule) {
  torch::nn::Sequential root(Linear(2, 2), Linear(2, 2));
  const TensorDict own = from_module(*root, State::kParameters);
  const Tensor first = own["0.weight"].detach().clone(), second = own["1.weight"].detach().clone();
  {
    const ToModuleGuard guard(TensorDict({{"0.weight", own["1.weight"]}, {"1.weight", own["0.weight"].detach()}}),
                              *root, {.inplace = true});
    EXPECT_TRUE(own["0.weight"].equal(second));
    EXPECT_TRUE(own["1.weight"].equal(first));
  }
  EXPECT_TRUE(own["0.weight"].equal(first));
  EXPECT_TRUE(own["1.weight"].equal(second));
}

TEST(ToModuleStateDictTest, ConvertsLeavesToTheDtypeOfTheModule) {
  Linear module(2, 3);
  const Tensor leaf = torch::rand({3}, torch::kDouble);
  const ToModuleGuard guard(TensorDict({{"bias", leaf}}), *module, {.use_state_dict = true});
  EXPECT_EQ(module->bias.scalar_type(), torch::kFloat);
  EXPECT_TRUE(module->bias.equal(leaf.to(torch::kFloat)));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    encoder = register_module("encoder", Linear(3, 3));
    decoder = register_module("decoder", Linear(3, 3));
    decoder->weight = encoder->weight;
  }
  Linear encoder = nullptr, decoder = nullptr;
};

TEST(ToModuleTiesTest, FollowsAMemberTiedByAssignment) {
  TiedImpl module;
  const Tensor leaf = torch::zeros({3, 3}).set_requires_grad(true);
  const auto handles = snapshot(module);
  {
    const ToModuleGuard guard(TensorDict({{"encoder.weight", leaf}}), module);
    EXPECT_TRUE(module.decoder->weight.is_same(leaf));
  }
  EXPECT_EQ(snapshot(module), handles);
}

TEST(ToModuleTiesTest, WritesASharedModuleOnceAndRefusesTwoValues) {
  torch::nn::Sequential root;
  Linear shared(2, 2);
  root->push_back("a", shared);
  root->push_back("b", shared);
  const auto handles = snapshot(*root);
  const Tensor leaf = torch::zeros({2, 2});
  {
    const ToModuleGuard guard(TensorDict({{"a.weight", leaf}, {"b.weight", leaf}}), *root);
    EXPECT_EQ(shared->weight.data_ptr(), leaf.data_ptr());
    EXPECT_EQ(guard.swapped_out().size(), 2);
    EXPECT_TRUE(guard.swapped_out()["a.weight"].is_same(guard.swapped_out()["b.weight"]));
  }
  EXPECT_EQ(snapshot(*root), handles);
  EXPECT_THAT(
      [&] {
        to_module(TensorDict({{"a.weight", leaf}, {"b.weight", torch::ones({2, 2})}}), *root);
      },
      ThrowsMessage<c10::ValueError>(AllOf(HasSubstr("a.weight"), HasSubstr("b.weight"))));
  EXPECT_EQ(snapshot(*root), handles);
}

TEST(ToModuleModulesTest, ReachesTheFlatWeightsOfAnLstm) {
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
  torch::nn::LSTM other(torch::nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true));
  const Tensor x = torch::randn({5, 2, 3});
  const auto handles = snapshot(*lstm);
  {
    const ToModuleGuard guard(from_module(*other), *lstm);
    EXPECT_TRUE(std::get<0>(lstm->forward(x)).equal(std::get<0>(other->forward(x))));
    lstm->to(torch::kDouble);  // makes the vector of weights anew
    lstm->to(torch::kFloat);
  }
  EXPECT_EQ(snapshot(*lstm), handles);
}

TEST(ToModuleModulesTest, TellsTheWeightsOfAnLstmApartThatShareALeaf) {
  torch::nn::LSTM lstm(3, 3);
  const Tensor x = torch::randn({5, 2, 3});
  const Tensor before = std::get<0>(lstm->forward(x));
  const auto handles = snapshot(*lstm);
  const Tensor leaf = torch::zeros({12, 3});
  const ToModuleOptions as_they_are{.preserve_module_state = false};
  const auto old = to_module(TensorDict({{"weight_ih_l0", leaf}, {"weight_hh_l0", leaf}}), *lstm, as_they_are);
  to_module(*old, *lstm, as_they_are);
  EXPECT_TRUE(std::get<0>(lstm->forward(x)).equal(before));
  EXPECT_EQ(snapshot(*lstm), handles);
}

TEST(ToModuleModulesTest, RestoresTheMembersOfAModuleThatGrewInTheBody) {
  AnnotatedImpl module;
  const Tensor x = torch::randn({2});
  const Tensor before = module.forward(x);
  {
    const ToModuleGuard guard(map(from_module(module), [](const Tensor& value) { return value + 1; }), module);
    module.grow();
  }
  EXPECT_TRUE(module.forward(x).equal(before));
}

TEST(ToModuleModulesTest, RestoresAModuleWhoseLongNamedChildrenMovedInTheBody) {
  torch::nn::Sequential root;
  root->push_back("a_name_that_is_kept_on_the_heap", Linear(2, 2));
  const auto handles = snapshot(*root);
  {
    const ToModuleGuard guard(map(from_module(*root), [](const Tensor& value) { return value + 1; }), *root);
    for (int i = 0; i < 9; ++i) root->push_back(torch::nn::ReLU());
  }
  EXPECT_EQ(snapshot(*root), handles);
}

TEST(ToModuleModulesTest, LeavesAModuleAloneThatTheBodyDestroyed) {
  auto net = std::make_shared<NetImpl>();
  const TensorDict leaves({{"fc1.bias", torch::zeros({4})}});
  {
    const ToModuleGuard guard(leaves, *net);
    net->fc1->register_buffer("extra", torch::ones({1}));
    net.reset();
    EXPECT_TRUE(guard.current().empty());
  }
}

TEST(ToModuleModulesTest, RestoresAModuleAtTheAddressOfOneThatIsGone) {
  torch::nn::Sequential root(Linear(2, 2));
  const TensorDict leaves({{"0.weight", torch::zeros({2, 2})}});
  auto& child = internal::child_registry(*root)["0"];
  for (int i = 0; i < 3; ++i) {
    child.reset();
    child.reset(new torch::nn::LinearImpl(2, 2));  // make_shared would not free the address while a plan knows it
    auto& linear = *child->as<Linear>();
    const Tensor weight = linear.weight;
    {
      const ToModuleGuard guard(leaves, *root);
      if (i == 2) linear.register_parameter("extra", torch::ones({1}));
    }
    EXPECT_TRUE(linear.weight.is_same(weight)) << i;
  }
}

TEST(ToModuleModulesTest, NoticesThatAModuleGrew) {
  torch::nn::Sequential root(Linear(2, 2));
  const Tensor leaf = torch::zeros({2, 2});
  { const ToModuleGuard guard(TensorDict({{"0.weight", leaf}}), *root); }
  root->push_back(Linear(2, 2));
  const ToModuleGuard guard(TensorDict({{"1.weight", leaf}}), *root);
  EXPECT_EQ(root[1]->as<Linear>()->weight.data_ptr(), leaf.data_ptr());
}

}  // namespace
}  // namespace graft
