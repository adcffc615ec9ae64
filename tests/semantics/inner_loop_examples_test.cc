// Inner loops of meta-learning, worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <tuple>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tensordict/autograd.h"
#include "tensordict/copy.h"
#include "tensordict/map.h"
#include "tests/semantics/small_modules.h"
#include "tests/testing/numbers.h"
#include "vmap/vmap.h"

namespace graft::testing {

using torch::Tensor;
using torch::nn::Linear;
using torch::nn::Sequential;

TEST(InnerLoopTest, OfFirstOrderReachesTheInitialParameters) {
  Linear net = linear(2, 1, true);
  to_module(TensorDict({{"weight", numbers({1, -1}, {1, 2})}, {"bias", numbers({0.5}, {1})}}), *net, {.inplace = true});
  const Tensor x = numbers({1, 2, 0, 1}, {2, 2}), y = numbers({1, 0}, {2, 1});
  const TensorDict params = from_module(*net);
  const Tensor inner = (functional_call(net, params, x) - y).square().mean();
  const TensorDict adapted = stepped(params, inner, 0.1, /*second_order=*/false);
  const Tensor outer = (functional_call(net, adapted, numbers({2, 0}, {1, 2})) - 1).square().mean();
  outer.backward();
  // The residuals are -1.5 and -0.5, the step 0.1 [-1.5, -3.5] and 0.1 (-2), so the outer residual is 2.
  EXPECT_THAT(list_of(net->weight.grad()), Near({8, 0}));
  EXPECT_THAT(list_of(net->bias.grad()), Near({4}));
}

TEST(InnerLoopTest, OfSecondOrderSeesThatTheStepDependsOnTheParameters) {
  Linear net = linear(2, 1, true);
  to_module(TensorDict({{"weight", numbers({1, -1}, {1, 2})}, {"bias", numbers({0.5}, {1})}}), *net, {.inplace = true});
  const Tensor x = numbers({1, 2, 0, 1}, {2, 2}), y = numbers({1, 0}, {2, 1});
  const TensorDict params = from_module(*net);
  const TensorDict adapted = stepped(params, (functional_call(net, params, x) - y).square().mean(), 0.1);
  (functional_call(net, adapted, numbers({2, 0}, {1, 2})) - 1).square().mean().backward();
  // (1 - 0.1 H) [8, 0, 4], with H the mean of 2 x x^T.
  EXPECT_THAT(list_of(net->weight.grad()), Near({6.8, -2.8}));
  EXPECT_THAT(list_of(net->bias.grad()), Near({2.4}));
}

TEST(InnerLoopTest, LeavesFrozenParametersAsTheyAre) {
  Sequential net(linear(1, 1, true), linear(1, 1, true));
  fill(*net, {2, 1, 0.5, -1});
  requires_grad_(from_module(*net[0]->as<torch::nn::Module>()), false);
  TensorDict trained_part = from_module(*net).subtree("1");
  const auto all = [&] {
    TensorDict tree = from_module(*net);
    tree.set("1", trained_part);
    return tree;
  };
  const Tensor start = trained_part["weight"];
  Tensor jacobian = torch::eye(2, torch::kDouble);
  double weight = 0.5, bias = -1;
  const double hidden = 2 * 3 + 1, rate = 0.01;
  for (int step = 0; step < 2; ++step) {
    const Tensor loss = functional_call(net, all(), numbers({3}, {1, 1})).square().sum();
    trained_part = stepped(trained_part, loss, rate);
    const double residual = hidden * weight + bias;
    weight -= rate * 2 * residual * hidden;
    bias -= rate * 2 * residual;
    const Tensor hessian = 2 * numbers({hidden * hidden, hidden, hidden, 1}, {2, 2});
    jacobian = (torch::eye(2, torch::kDouble) - rate * hessian).matmul(jacobian);
  }
  EXPECT_THAT(list_of(trained_part["weight"]), Near({weight}));
  EXPECT_THAT(list_of(trained_part["bias"]), Near({bias}));
  functional_call(net, all(), numbers({1}, {1, 1})).sum().backward();
  const auto expected = list_of(jacobian.t().matmul(numbers({2 * 1 + 1, 1}, {2})));
  EXPECT_NEAR(start.grad().item<double>(), expected[0], 1e-12);
  EXPECT_NEAR(from_module(*net)["1.bias"].grad().item<double>(), expected[1], 1e-12);
  EXPECT_FALSE(from_module(*net)["0.weight"].grad().defined());
  EXPECT_THAT(list_of(from_module(*net)["0.weight"]), Near({2}));
}

TEST(CopiesTest, WithHistoryPassGradientsToTheModuleAndDetachedOnesKeepThem) {
  const Tensor x = torch::ones({1, 1}, torch::kDouble);
  const auto loss = [&](Linear& net, const TensorDict& p) { return (functional_call(net, p, x) - 1).square().mean(); };
  Linear net = linear(1, 1, false);
  fill(*net, {0.5});
  const TensorDict attached = clone(from_module(*net));
  const TensorDict adapted = stepped(attached, loss(net, attached), 0.1);
  EXPECT_NEAR(adapted["weight"].item<double>(), 0.6, 1e-12);
  loss(net, adapted).backward();
  EXPECT_NEAR(net->weight.grad().item<double>(), 2 * (0.6 - 1) * (1 - 0.2), 1e-12);
  EXPECT_EQ(net->weight.item<double>(), 0.5);
  net->zero_grad();
  const TensorDict detached = requires_grad_(clone(detach(from_module(*net))));
  loss(net, stepped(detached, loss(net, detached), 0.1)).backward();
  EXPECT_NEAR(detached["weight"].grad().item<double>(), -0.64, 1e-12);
  EXPECT_FALSE(net->weight.grad().defined());
}

TEST(InnerLoopTest, InsideVmapEqualsALoopOverTasks) {
  Sequential net(linear(1, 2, false), torch::nn::Tanh(), linear(2, 1, true));
  const TensorDict params({{"0.weight", trained(numbers({0.5, -0.3}, {2, 1}))},
                           {"2.weight", trained(numbers({1, -1}, {1, 2}))},
                           {"2.bias", trained(numbers({0.1}, {1}))}});
  const Tensor x = numbers({1, 2, 0, -1, 0.5, 0.5}, {3, 2, 1}), y = x.square() - 1;
  const Tensor query = numbers({0.3, 2, -1}, {3, 1, 1}), answer = query.square() - 1;
  const auto mse = [&](const TensorDict& p, const Tensor& input, const Tensor& target) {
    return (functional_call(net, p, input) - target).square().mean();
  };
  for (const auto& [steps, loss, first, bias, second] :
       std::vector<std::tuple<int, double, std::vector<double>, double, std::vector<double>>>{
           {0, 4.550421277849, {-0.929758794, 2.618852692}, -2.012286457, {-1.463436493, 1.115159897}},
           {1, 5.712906462090, {-2.149062172, 4.66323219}, -3.356324011, {-1.869952806, 0.934675859}},
           {3, 7.406472494994, {-2.76853008, 5.485671096}, -4.840454885, {-1.659685487, 0.265759727}}}) {
    const int count = steps;
    const auto task = [&](TensorDict p, const Tensor& x1, const Tensor& y1, const Tensor& x2, const Tensor& y2) {
      for (int step = 0; step < count; ++step) {
        p = zip_map(p, grad(mse)(p, x1, y1), [](const Tensor& leaf, const Tensor& g) { return leaf - g * 0.1; });
      }
      return mse(p, x2, y2);
    };
    const Tensor total = vmap(task, {.in_dims = {std::nullopt, 0, 0, 0, 0}})(params, x, y, query, answer).sum();
    EXPECT_NEAR(total.item<double>(), loss, 1e-11);
    const auto gradients = torch::autograd::grad({total}, params.values());
    EXPECT_THAT(list_of(gradients[0]), Near(first, 1e-8));
    EXPECT_THAT(list_of(gradients[1]), Near(second, 1e-8));
    EXPECT_NEAR(gradients[2].item<double>(), bias, 1e-8);
  }
}

}  // namespace graft::testing
