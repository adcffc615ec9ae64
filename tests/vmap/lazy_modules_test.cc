#include "vmap/lazy_modules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <optional>
#include <vector>

#include "functional/functional_call.h"
#include "functional/to_module.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using torch::nn::Linear;

class LazyModulesTest : public ::testing::Test {
 protected:
  const std::vector<Linear> nets_ = {Linear(3, 2), Linear(3, 2)};
  const at::Tensor x_ = at::rand({5, 3});
};

TEST_F(LazyModulesTest, InsideVmapGradientsReachEveryModule) {
  const LazyStack states = lazy_from_modules(nets_);
  EXPECT_TRUE(states[1]["weight"].is_same(nets_[1]->weight));
  const auto forward = [&](const TensorDict& p, const at::Tensor& x) { return functional_call(nets_[0], p, x); };
  const at::Tensor all = vmap(forward, {.in_dims = {0, std::nullopt}})(states.stack(), x_);
  for (std::size_t i = 0; i < nets_.size(); ++i) {
    EXPECT_TRUE(all[static_cast<int64_t>(i)].allclose(Linear(nets_[i])->forward(x_)));
  }
  all.square().sum().backward();
  for (Linear net : nets_) {
    const at::Tensor gradient = net->weight.grad().clone();
    net->zero_grad();
    net->forward(x_).square().sum().backward();
    EXPECT_TRUE(gradient.allclose(net->weight.grad()));
  }
}

TEST_F(LazyModulesTest, OutsideVmapAMemberOrTheStackGoesIntoAModule) {
  const LazyStack states = lazy_from_modules(nets_);
  Linear net(3, 2);
  {
    const ToModuleGuard guard(states[1], net);
    EXPECT_TRUE(net->forward(x_).equal(Linear(nets_[1])->forward(x_)));
  }
  const ToModuleGuard guard(states.stack(), net, {.check_shapes = false});
  EXPECT_EQ(net->weight.sizes(), (std::vector<int64_t>{2, 2, 3}));
}

TEST_F(LazyModulesTest, TakesModulesThatDiffer) {
  const std::vector<Linear> differing = {Linear(3, 2), Linear(4, 2)};
  const LazyStack states = lazy_from_modules(differing);
  EXPECT_EQ(states.shape("weight"), (std::vector<std::optional<int64_t>>{2, 2, std::nullopt}));
  EXPECT_THAT([] { lazy_from_modules(std::vector<Linear>{}); }, ThrowsWith<c10::ValueError>("no modules"));
}

}  // namespace
}  // namespace graft
