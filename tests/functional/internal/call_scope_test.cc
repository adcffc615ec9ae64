#include "functional/internal/call_scope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/module_state.h"
#include "tests/testing/throws_with.h"

namespace graft::internal {
namespace {

using testing::ThrowsWith;
using torch::Tensor;

/// One parameter in a member that no table knows, one in a Linear.
struct MixedImpl : torch::nn::Module {
  MixedImpl() {
    w = register_parameter("w", torch::ones({2}));
    fc = register_module("fc", torch::nn::Linear(2, 2));
  }
  Tensor w;
  torch::nn::Linear fc = nullptr;
};

TEST(CallScopeTest, InstallsKnownHandlesAndRedirectsTheRest) {
  MixedImpl module;
  const Tensor w = module.w, weight = module.fc->weight;
  const TensorDict leaves({{"w", torch::zeros({2})}, {"fc.weight", torch::zeros({2, 2})}});
  {
    const CallScope scope(module, {&leaves}, /*concurrent=*/false);
    EXPECT_TRUE(module.fc->weight.is_same(leaves["fc.weight"]));
    EXPECT_TRUE(module.w.is_same(w));
    EXPECT_TRUE((module.w + 0).equal(leaves["w"]));
    EXPECT_TRUE(from_module(module)["w"].is_same(leaves["w"]));
  }
  EXPECT_TRUE(module.fc->weight.is_same(weight));
  EXPECT_TRUE((module.w + 0).equal(w));
  EXPECT_TRUE(from_module(module)["w"].is_same(w));
}

TEST(CallScopeTest, FindsTheLeafOfARedirectedParameterAlone) {
  MixedImpl module;
  const TensorDict leaves({{"w", torch::zeros({2})}, {"fc.weight", torch::zeros({2, 2})}});
  const CallScope scope(module, {&leaves}, /*concurrent=*/false);
  EXPECT_TRUE(scope.leaf_for(module.w).is_same(leaves["w"]));
  EXPECT_TRUE(scope.leaf_for(module.fc->bias).is_same(module.fc->bias));
  EXPECT_FALSE(scope.leaf_for(Tensor()).defined());
}

TEST(CallScopeTest, TakesSeveralTrees) {
  MixedImpl module;
  const TensorDict own({{"w", torch::zeros({2})}}), child({{"fc.weight", torch::zeros({2, 2})}});
  const CallScope scope(module, {&own, &child}, /*concurrent=*/false);
  EXPECT_TRUE((module.w + 0).equal(own["w"]));
  EXPECT_TRUE(module.fc->weight.is_same(child["fc.weight"]));
}

bool is_redirect_open() { return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::TESTING_ONLY_GenericMode); }

TEST(CallScopeTest, OpensARedirectOfKnownHandlesOnceAlone) {
  MixedImpl module;
  const TensorDict leaves({{"fc.weight", torch::zeros({2, 2})}});
  for (const bool is_first : {true, false}) {
    CallScope scope(module, {&leaves}, /*concurrent=*/false);
    EXPECT_EQ(is_redirect_open(), is_first);
    scope.note_met();
  }
  EXPECT_FALSE(is_redirect_open());
}

TEST(CallScopeTest, WritesToNothingIfItIsConcurrent) {
  MixedImpl module;
  const Tensor w = module.w, weight = module.fc->weight;
  const TensorDict leaves({{"w", torch::zeros({2})}, {"fc.weight", torch::zeros({2, 2})}});
  const CallScope scope(module, {&leaves}, /*concurrent=*/true);
  EXPECT_TRUE(module.w.is_same(w));
  EXPECT_TRUE(module.fc->weight.is_same(weight));
  EXPECT_TRUE(from_module(module)["w"].is_same(w));
  EXPECT_TRUE((module.w + 0).equal(leaves["w"]));
  EXPECT_TRUE((module.fc->weight + 0).equal(leaves["fc.weight"]));
  EXPECT_TRUE(scope.leaf_for(weight).is_same(leaves["fc.weight"]));
}

TEST(CallScopeTest, RefusesToRunWithoutATree) {
  MixedImpl module;
  EXPECT_THAT([&] { CallScope scope(module, {}, /*concurrent=*/false); },
              ThrowsWith<c10::ValueError>("functional_call", "got none"));
}

}  // namespace
}  // namespace graft::internal
