// hvp, vhp, the products of Gauss-Newton and Fisher matrices, linearize and stop_gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/grad.h"
#include "functional/hvp.h"
#include "functional/linearize.h"
#include "functional/stop_gradient.h"
#include "tensordict/pointwise.h"
#include "tensordict/structure.h"
#include "tests/testing/throws_with.h"
#include "vmap/jacobian.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;

Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble); }

/// A net with [n, 2] results.
Tensor net(const TensorDict& p, const Tensor& x) { return (x.matmul(p["w"]) + p["b"]).tanh(); }

class SecondOrderTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(0); }

  double loss_at(const TensorDict& p) const { return loss(p, x_).item<double>(); }
  static Tensor loss(const TensorDict& p, const Tensor& x) { return net(p, x).square().sum() + p["b"].prod(); }

  /// (g(p + hv) - g(p - hv)) / 2h
  TensorDict differences() const {
    const double h = 1e-5;
    const auto g = grad(loss);
    return (g(params_ + h * v_, x_) - g(params_ - h * v_, x_)) / (2 * h);
  }

  TensorDict params_{{{"w", random({3, 2})}, {"b", random({2})}}};
  TensorDict v_{{{"w", random({3, 2})}, {"b", random({2})}}};
  Tensor x_ = random({4, 3});
};

TEST_F(SecondOrderTest, HessianProductsEqualDifferences) {
  const auto of_params = [&](const TensorDict& p) { return loss(p, x_); };
  EXPECT_TRUE(allclose(hvp(of_params, params_, v_), differences(), 1e-6, 1e-7));
  EXPECT_TRUE(allclose(hvp<0>(loss, std::tuple(params_, x_), v_), differences(), 1e-6, 1e-7));
  EXPECT_TRUE(allclose(vhp(of_params, params_, v_), hvp(of_params, params_, v_)));
  EXPECT_TRUE(allclose(vhp<-2>(loss, std::tuple(params_, x_), v_), hvp(of_params, params_, v_)));
}

TEST_F(SecondOrderTest, HessianProductsInSeveralArguments) {
  const Tensor dx = random({4, 3});
  const auto [hp, hx] = hvp(loss, std::tuple(params_, x_), std::tuple(v_, dx));
  const auto g = grad<0, 1>(loss);
  const double h = 1e-5;
  const auto [up, ux] = g(params_ + h * v_, x_ + h * dx);
  const auto [dp, dx2] = g(params_ - h * v_, x_ - h * dx);
  EXPECT_TRUE(allclose(hp, (up - dp) / (2 * h), 1e-6, 1e-7));
  EXPECT_TRUE(hx.allclose((ux - dx2) / (2 * h), 1e-6, 1e-7));
}

TEST_F(SecondOrderTest, HandOutTheAuxiliaryValue) {
  const auto f = [](const Tensor& x) { return std::pair(x.pow(3).sum(), x + 1); };
  const Tensor x = random({3}), v = random({3});
  for (const auto& [product, aux] : {hvp(f, x, v), vhp(f, x, v)}) {
    EXPECT_TRUE(product.allclose(6 * x * v));
    EXPECT_TRUE(aux.equal(x + 1));
  }
}

TEST_F(SecondOrderTest, GaussNewtonAndFisherProductsEqualTheMatrices) {
  const auto model = [&](const TensorDict& p) { return net(p, x_); };
  const auto of_outputs = [](const Tensor& y) { return torch::logsumexp(y, 1).sum(); };
  const auto flat = [](const TensorDict& tree, int64_t lead) {
    return torch::cat({tree["w"].flatten(lead), tree["b"].flatten(lead)}, lead);
  };
  const Tensor v = flat(v_, 0);
  const Tensor j = flat(jacrev(model)(params_), 2).reshape({8, 8});
  const Tensor h = hessian(of_outputs)(model(params_)).reshape({8, 8});
  EXPECT_TRUE(
      flat(ggn_vector_product(model, of_outputs, params_, v_), 0).allclose(j.t().matmul(h.matmul(j.matmul(v)))));

  const auto losses = [&](const TensorDict& p) { return net(p, x_).square().sum(1); };
  const Tensor g = flat(jacrev(losses)(params_), 1);
  EXPECT_TRUE(flat(fisher_vector_product(losses, params_, v_), 0).allclose(g.t().matmul(g.matmul(v)) / 4));
  EXPECT_THAT([&] { fisher_vector_product(model, params_, v_); }, ThrowsWith<c10::ValueError>("expected [n]"));
}

TEST_F(SecondOrderTest, LinearizeEqualsJvp) {
  const auto [y, pushforward] = linearize<0>(net, params_, x_);
  EXPECT_TRUE(y.equal(net(params_, x_)));
  for (int i = 0; i < 2; ++i) {
    const TensorDict v = v_.map([](const Tensor& leaf) { return torch::randn_like(leaf); });
    EXPECT_TRUE(pushforward(v).allclose(jvp<0>(net, std::tuple(params_, x_), v).second));
  }
  const auto apply = [&, &push = pushforward](const TensorDict& v) { return push(v); };
  EXPECT_THAT(
      [&] {
        apply(TensorDict({{"w", v_["w"]}}));
      },
      ThrowsWith<c10::ValueError>("linearize: the tangents do not fit the arguments", "\"b\""));
}

TEST_F(SecondOrderTest, LinearizeWorksWithoutForwardDerivatives) {
  // LibTorch has no forward-mode derivative of it.
  const auto f = [](const Tensor& x) { return torch::fft_fft(x).abs().cumprod(0); };
  const Tensor x = random({5}), v = random({5});
  const double h = 1e-6;
  const auto [y, pushforward] = linearize(f, x);
  EXPECT_TRUE(pushforward(v).allclose((f(x + h * v) - f(x - h * v)) / (2 * h), 1e-6, 1e-6));
}

TEST_F(SecondOrderTest, DerivativesThatVanishHaveMemory) {
  const auto first = grad([](const Tensor& x) { return x.abs().sum(); });
  const auto sum = [&](const Tensor& x) { return first(x).sum(); };
  const Tensor x = random({4, 3});
  const auto expect_zeros = [&](const Tensor& zeros) {
    EXPECT_TRUE(zeros.equal(torch::zeros_like(x)));
    EXPECT_NE(zeros.data_ptr(), nullptr);
  };
  expect_zeros(grad(sum)(x));
  expect_zeros(vmap(grad(sum))(x));
  expect_zeros(vjp(first, x).second(x));
  expect_zeros(vmap([&](const Tensor& row) { return vjp(first, row).second(row); })(x));
  expect_zeros(jvp(first, x, x).second);
  expect_zeros(linearize(first, x).second(x));
}

TEST_F(SecondOrderTest, StopGradientStopsEveryDerivative) {
  const auto f = [](const Tensor& x) { return (stop_gradient(x) * x).sum(); };
  const Tensor x = random({3}), v = random({3});
  EXPECT_TRUE(grad(f)(x).equal(x));
  EXPECT_TRUE(jvp(f, x, v).second.allclose(x.dot(v)));
  EXPECT_TRUE(hvp(f, x, v).equal(torch::zeros({3}, torch::kDouble)));
  const Tensor leaf = x.clone().requires_grad_();
  f(leaf).backward();
  EXPECT_TRUE(leaf.grad().equal(x));
  const auto tree = stop_gradient(std::pair(TensorDict({{"a", leaf}}), std::vector<Tensor>{leaf}));
  EXPECT_FALSE(tree.first["a"].requires_grad() || tree.second[0].requires_grad());
}

}  // namespace
}  // namespace graft
