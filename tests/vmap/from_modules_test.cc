// from_modules with the rest of Graft. What it does case by case is in tests/semantics/from_modules_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <vector>

#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tensordict/join.h"
#include "tests/testing/nets.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/ensemble.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::make_nets;
using testing::state_of;
using testing::TensorDictNear;
using testing::ThrowsWith;
using torch::nn::Linear;

/// Two Linears whose weights are one tensor.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    register_module("encoder", encoder);
    register_module("decoder", decoder);
    to_module(TensorDict({{"decoder.weight", encoder->weight}}), *this);
  }
  Tensor forward(const Tensor& x) { return decoder->forward(encoder->forward(x)); }
  Linear encoder{3, 3}, decoder{3, 3};
};
TORCH_MODULE(Tied);

TEST(FromModulesTest, AgreesWithStackModuleState) {
  const auto nets = make_nets(2);
  const auto [params, buffers] = stack_module_state(nets);
  const TensorDict state = from_modules(nets);
  EXPECT_EQ(state.size(), params.size() + buffers.size());
  for (const TensorDict* part : {&params, &buffers}) {
    for (const auto& [path, leaf] : part->leaves()) EXPECT_TRUE(state[path].equal(leaf)) << path;
  }
}

TEST(FromModulesTest, SaysOnceThatAModuleIsInAnotherModeWithAllBelow) {
  auto nets = make_nets(2);
  nets[1]->eval();
  EXPECT_THAT([&] { from_modules(nets); },
              ::testing::ThrowsMessage<c10::ValueError>(::testing::Not(::testing::HasSubstr("sub-module"))));
}

TEST(FromModulesTest, TrainsAnEnsembleThroughTensorDictParams) {
  std::vector<Linear> nets{Linear(3, 2), Linear(3, 2)};
  const TensorDictParams params(from_modules(nets));
  torch::optim::SGD optimizer(params->parameters(), /*lr=*/0.1);
  const Tensor x = torch::randn({5, 3});
  const auto forward = [&](const TensorDict& leaves, const Tensor& input) {
    return functional_call(nets[0], leaves, input).square().sum();
  };
  vmap(forward, {.in_dims = {0, std::nullopt}})(params->tree(), x).sum().backward();
  optimizer.step();
  for (int i = 0; i < 2; ++i) {
    torch::optim::SGD own(nets[i]->parameters(), /*lr=*/0.1);
    nets[i]->forward(x).square().sum().backward();
    own.step();
    EXPECT_THAT(unbind(params->tree())[i], TensorDictNear(state_of(nets[i]), 1e-5));
  }
  const std::vector<TensorDictParams> two{params, params};
  EXPECT_EQ(from_modules(two)["weight"].sizes(), (std::vector<int64_t>{2, 2, 2, 3}));
}

TEST(FromModulesTest, RefusesOtherTies) {
  const std::vector<Tied> nets{Tied(), Tied()};
  to_module(TensorDict({{"decoder.weight", torch::ones({3, 3})}}), *nets[1].ptr());
  EXPECT_THAT([&] { from_modules(nets); },
              ThrowsWith<c10::ValueError>(
                  "module 1:\n  \"decoder.weight\": a tensor of its own, expected the tensor of \"encoder.weight\""));
}

TEST(FromModulesTest, RunsTiedModulesUnderVmap) {
  std::vector<Tied> nets{Tied(), Tied()};
  const Ensemble ensemble(nets);
  const Tensor x = torch::randn({4, 3});
  const Tensor expected = torch::stack({nets[0]->forward(x), nets[1]->forward(x)});
  EXPECT_TRUE(ensemble.forward(x).allclose(expected, 1e-5, 1e-6));
  EXPECT_EQ(ensemble.parameters().size(), 3);  // each once, for an optimiser
}

}  // namespace
}  // namespace graft
