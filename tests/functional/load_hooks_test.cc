#include "functional/load_hooks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "functional/to_module.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ThrowsWith;
using torch::nn::Linear;
using torch::nn::LinearImpl;

struct NetImpl : torch::nn::Module {
  NetImpl() {
    one = register_module("one", Linear(2, 2));
    two = register_module("two", Linear(2, 2));
    register_module("again", one.ptr());
  }
  Linear one = nullptr, two = nullptr;
};
TORCH_MODULE(Net);

class LoadHooksTest : public ::testing::Test {
 protected:
  /// A hook that notes that it has run.
  LoadHook noting(const std::string& name) {
    return [this, name](TensorDict&, const std::string& prefix) { runs_.push_back(name + ":" + prefix); };
  }

  /// Returns the runs of hooks that a load of `module` makes.
  std::vector<std::string> runs(torch::nn::Module& module) {
    runs_.clear();
    TensorDict state;
    internal::run_load_hooks(module, state);
    return runs_;
  }

  std::vector<std::string> runs_;
};

TEST_F(LoadHooksTest, RunParentsFirstInTheOrderOfRegistration) {
  Net net;
  register_load_hook(net->two.ptr(), noting("two"));
  register_load_hook(net->one.ptr(), noting("one"));
  register_load_hook(net.ptr(), noting("first"));
  register_load_hook(net.ptr(), noting("second"));
  EXPECT_THAT(runs(*net), ElementsAre("first:", "second:", "one:one.", "two:two."));
}

TEST_F(LoadHooksTest, OfASharedModuleRunOnceUnderItsFirstName) {
  Net net;
  register_load_hook(net->one.ptr(), noting("one"));
  EXPECT_THAT(runs(*net), ElementsAre("one:one."));
}

TEST_F(LoadHooksTest, OfTheModuleAboveDoNotRun) {
  Net net;
  register_load_hook(net.ptr(), noting("net"));
  register_load_hook(net->one.ptr(), noting("one"));
  EXPECT_THAT(runs(*net->one), ElementsAre("one:"));
}

TEST_F(LoadHooksTest, RunOnceForEachLoadAndForNoOtherSwap) {
  Linear net(2, 2);
  register_load_hook(net.ptr(), noting("net"));
  const TensorDict tree({{"weight", torch::ones({2, 2})}});
  to_module(tree, net);
  EXPECT_THAT(runs_, IsEmpty());
  to_module(tree, net, {.use_state_dict = true});
  to_module(tree, net, {.use_state_dict = true});
  EXPECT_THAT(runs_, ElementsAre("net:", "net:"));
}

TEST_F(LoadHooksTest, EachSeesWhatTheOneBeforeHasLeft) {
  Net net;
  register_load_hook(net.ptr(), [](TensorDict& state, const std::string&) { state.set("one.w", torch::ones({2})); });
  register_load_hook(net->one.ptr(), [](TensorDict& state, const std::string& prefix) {
    state.set(prefix + "weight", state.at(prefix + "w"));
    state.erase(prefix + "w");
  });
  TensorDict state;
  internal::run_load_hooks(*net, state);
  EXPECT_TRUE(state.contains("one.weight"));
  EXPECT_EQ(state.size(), 1);
}

TEST_F(LoadHooksTest, AreRemovedByTheirHandle) {
  Linear net(2, 2);
  register_load_hook(net.ptr(), noting("stays"));
  const LoadHookHandle handle = register_load_hook(net.ptr(), noting("goes"));
  handle.remove();
  handle.remove();
  EXPECT_THAT(runs(*net), ElementsAre("stays:"));
}

TEST_F(LoadHooksTest, MayRegisterAndRemoveOthers) {
  Linear net(2, 2);
  const LoadHookHandle other = register_load_hook(net.ptr(), noting("other"));
  register_load_hook(net.ptr(), [&](TensorDict&, const std::string&) {
    other.remove();
    register_load_hook(net.ptr(), noting("new"));
  });
  EXPECT_THAT(runs(*net), ElementsAre("other:"));  // those that there were at the start
  EXPECT_THAT(runs(*net), ElementsAre("new:"));
}

TEST_F(LoadHooksTest, GoWithTheirModule) {
  alignas(LinearImpl) std::byte place[sizeof(LinearImpl)];
  const auto make_module = [&place] {
    return std::shared_ptr<LinearImpl>(new (place) LinearImpl(2, 2), [](LinearImpl* module) { module->~LinearImpl(); });
  };
  const auto held = std::make_shared<int>();
  auto module = make_module();
  register_load_hook(module, [held](TensorDict&, const std::string&) { FAIL(); });
  module.reset();
  module = make_module();
  EXPECT_THAT(runs(*module), IsEmpty());
  register_load_hook(module, noting("next"));
  EXPECT_EQ(held.use_count(), 1) << "the next registration frees hooks of modules that are gone";
}

TEST_F(LoadHooksTest, NeedAModule) {
  EXPECT_THAT([&] { register_load_hook(nullptr, noting("none")); },
              ThrowsWith<c10::ValueError>("register_load_hook", "null pointer"));
}

}  // namespace
}  // namespace graft
