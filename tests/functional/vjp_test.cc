// vjp against autograd.
#include "functional/vjp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/grad.h"
#include "functional/internal/transform_level.h"
#include "tensordict/join.h"
#include "tensordict/structure.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;

Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble); }

Tensor layer(const TensorDict& params, const Tensor& x) { return (x.matmul(params["w"]) + params["b"]).tanh(); }

class VjpTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(0); }
  void TearDown() override { EXPECT_EQ(internal::depth(), 0); }

  /// The vector-Jacobian product by ordinary autograd.
  TensorDict by_autograd(const Tensor& cotangent) const {
    const TensorDict leaves = params_.map([](const Tensor& leaf) { return leaf.detach().clone().requires_grad_(); });
    layer(leaves, x_).backward(cotangent);
    return leaves.map([](const Tensor& leaf) { return leaf.grad(); });
  }

  TensorDict params_{{{"w", random({3, 2})}, {"b", random({2})}}};
  Tensor x_ = random({4, 3});
};

TEST_F(VjpTest, EqualsAutogradEachTime) {
  const auto [y, pullback] = vjp<0>(layer, params_, x_);
  EXPECT_TRUE(y.allclose(layer(params_, x_)));
  EXPECT_FALSE(y.requires_grad());
  for (int i = 0; i < 3; ++i) {
    const Tensor cotangent = random({4, 2});
    EXPECT_TRUE(allclose(pullback(cotangent), by_autograd(cotangent)));
  }
}

TEST_F(VjpTest, DifferentiatesAllArgumentsUnlessTold) {
  const auto [y, pullback] = vjp(layer, params_, x_);
  const Tensor cotangent = torch::ones_like(y);
  const std::tuple<TensorDict, Tensor> gradients = pullback(cotangent);
  EXPECT_TRUE(allclose(std::get<0>(gradients), by_autograd(cotangent)));
  const auto [z, last] = vjp<-1>(layer, params_, x_);
  EXPECT_TRUE(last(cotangent).equal(std::get<1>(gradients)));
  const auto [u, turned] = vjp<1, 0>(layer, params_, x_);
  EXPECT_TRUE(std::get<0>(turned(cotangent)).equal(std::get<1>(gradients)));
}

TEST_F(VjpTest, TakesATreeOfCotangents) {
  const auto f = [](const Tensor& x) {
    return std::pair(TensorDict({{"sin", x.sin()}, {"twice", 2 * x}}), std::vector<Tensor>{x.square(), x.size(0) * x});
  };
  const Tensor x = random({3});
  const auto [y, pullback] = vjp(f, x);
  const auto cotangents = std::pair(TensorDict({{"twice", random({3})}, {"sin", random({3})}}),
                                    std::vector<Tensor>{random({3}), random({3})});
  const auto& [tree, list] = cotangents;
  const Tensor expected = tree["sin"] * x.cos() + 2 * tree["twice"] + list[0] * 2 * x + list[1] * 3;
  EXPECT_TRUE(pullback(cotangents).allclose(expected));
}

TEST_F(VjpTest, HandsOutTheAuxiliaryValue) {
  const auto f = [](const Tensor& x) { return WithAux{x.square(), std::pair(x + 1, 7)}; };
  const Tensor x = random({3});
  const auto [y, pullback, aux] = vjp(f, x);
  EXPECT_TRUE(y.equal(x.square()));
  EXPECT_TRUE(aux.first.equal(x + 1));
  EXPECT_EQ(aux.second, 7);
  EXPECT_TRUE(pullback(torch::ones_like(y)).allclose(2 * x));
}

TEST_F(VjpTest, IsZeroWhereNothingDepends) {
  const auto f = [](const Tensor& x, const Tensor&) { return std::pair(x.detach(), x.argmax()); };
  const auto [y, pullback] = vjp(f, x_, x_);
  const auto [first, second] = pullback(y);
  EXPECT_TRUE(first.equal(torch::zeros_like(x_)) && second.equal(torch::zeros_like(x_)));
}

TEST_F(VjpTest, IsPulledBackUnderVmap) {
  const auto [y, pullback] = vjp<0>(layer, params_, x_);
  const Tensor basis = torch::eye(y.numel(), torch::kDouble).reshape({y.numel(), 4, 2});
  const TensorDict jacobian = vmap(pullback)(basis);
  for (int64_t i = 0; i < y.numel(); ++i) {
    EXPECT_TRUE(allclose(unbind(jacobian)[i], by_autograd(basis[i])));
  }
}

TEST_F(VjpTest, IsDifferentiatedFurther) {
  const Tensor cotangent = random({4, 2});
  // The derivative of sum_i c_i * d(sum y_i) / dx, by transforms and by ordinary autograd through the pullback.
  const auto squared = [&](const Tensor& x) {
    const auto [y, pullback] = vjp<1>(layer, params_, x);
    return pullback(cotangent).square().sum();
  };
  const Tensor second = grad(squared)(x_);
  const Tensor x = x_.clone().requires_grad_();
  const Tensor first = torch::autograd::grad({layer(params_, x)}, {x}, {cotangent}, true, /*create_graph=*/true)[0];
  const Tensor expected = torch::autograd::grad({first.square().sum()}, {x})[0];
  EXPECT_TRUE(second.allclose(expected));
  squared(x).backward();
  EXPECT_TRUE(x.grad().allclose(expected));
}

TEST_F(VjpTest, IsDifferentiatedInTheCotangents) {
  const auto [y, pullback] = vjp<1>(layer, params_, x_);
  const auto loss = [&, &pull = pullback](const Tensor& cotangent) { return pull(cotangent).square().sum(); };
  const Tensor cotangent = random({4, 2});
  const Tensor leaf = cotangent.clone().requires_grad_();
  loss(leaf).backward();
  EXPECT_TRUE(grad(loss)(cotangent).allclose(leaf.grad()));
}

TEST_F(VjpTest, OutlivesTheTransformItWasMadeIn) {
  const auto f = [&](const Tensor& x) {
    const auto [y, pullback] = vjp(layer, params_, x);
    return std::get<1>(pullback(torch::ones_like(y)));
  };
  const Tensor rows = vmap(f)(x_);
  for (int64_t i = 0; i < x_.size(0); ++i) EXPECT_TRUE(rows[i].allclose(f(x_[i])));
}

TEST_F(VjpTest, RespectsNoGrad) {
  const auto f = [](const Tensor& x) {
    const torch::NoGradGuard no_grad;
    return x.square();
  };
  const Tensor ones = torch::ones_like(x_);
  EXPECT_TRUE(vjp(f, x_).second(ones).equal(torch::zeros_like(x_)));
  const torch::NoGradGuard no_grad;
  const auto [y, pullback] = vjp([](const Tensor& x) { return x.square(); }, x_);
  EXPECT_TRUE(pullback(ones).allclose(2 * x_));
}

TEST_F(VjpTest, NamesWhatDoesNotFit) {
  const auto pullback = vjp<0>(layer, params_, x_).second;
  EXPECT_THAT([&] { pullback(random({2})); },
              ThrowsWith<c10::ValueError>("vjp: the cotangents do not fit the result", "shape [2], expected [4, 2]"));
  EXPECT_THAT([&] { pullback(torch::ones({4, 2})); }, ThrowsWith<c10::ValueError>("Float, expected Double"));
  EXPECT_THAT(
      [&] {
        vjp(layer, params_, torch::ones({4, 3}, torch::kLong));
      },
      ThrowsWith<c10::TypeError>("vjp: these tensors have no derivative", "argument 1: Long"));
  const auto tree = [](const Tensor& x) { return TensorDict({{"a", x}, {"b", x}}); };
  const auto of_tree = vjp(tree, x_).second;
  const TensorDict other({{"a", x_}, {"c", x_}});
  EXPECT_THAT([&] { of_tree(other); }, ThrowsWith<c10::ValueError>("\"b\"", "\"c\""));
}

}  // namespace
}  // namespace graft
