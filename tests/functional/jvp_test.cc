// jvp against backward derivatives and finite differences.
#include "functional/jvp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/torch.h>

#include <functional>
#include <thread>

#include "functional/grad.h"
#include "functional/internal/transform_level.h"
#include "functional/vjp.h"
#include "tensordict/pointwise.h"
#include "tensordict/structure.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using torch::autograd::ForwardADLevel;

Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble); }

Tensor layer(const TensorDict& params, const Tensor& x) { return (x.matmul(params["w"]) + params["b"]).tanh(); }

class JvpTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(0); }
  void TearDown() override {
    EXPECT_EQ(internal::depth(), 0);
    EXPECT_EQ(ForwardADLevel::try_get_by_idx(0), nullptr);
  }

  /// The derivative along (dparams, dx) by central differences.
  Tensor differences(const TensorDict& dparams, const Tensor& dx) const {
    const double h = 1e-6;
    return (layer(params_ + h * dparams, x_ + h * dx) - layer(params_ - h * dparams, x_ - h * dx)) / (2 * h);
  }

  TensorDict params_{{{"w", random({3, 2})}, {"b", random({2})}}};
  TensorDict dparams_ = params_.map([](const Tensor& leaf) { return torch::randn_like(leaf); });
  Tensor x_ = random({4, 3}), dx_ = random({4, 3});
};

TEST_F(JvpTest, EqualsFiniteDifferences) {
  const auto [y, dy] = jvp(layer, std::tuple(params_, x_), std::tuple(dparams_, dx_));
  EXPECT_TRUE(y.equal(layer(params_, x_)));
  EXPECT_TRUE(dy.allclose(differences(dparams_, dx_), 1e-7, 1e-8));
}

TEST_F(JvpTest, DifferentiatesTheArgumentsByNumber) {
  const TensorDict zeros = dparams_.map([](const Tensor& leaf) { return torch::zeros_like(leaf); });
  const auto by_x = jvp<-1>(layer, std::tuple(params_, x_), dx_);
  EXPECT_TRUE(by_x.second.allclose(differences(zeros, dx_), 1e-7, 1e-8));
  const auto by_params = jvp<0>(layer, std::tuple(params_, x_), std::tuple(dparams_));
  EXPECT_TRUE(by_params.second.allclose(differences(dparams_, torch::zeros_like(dx_)), 1e-7, 1e-8));
  const auto turned = jvp<1, 0>(layer, std::tuple(params_, x_), std::tuple(dx_, dparams_));
  EXPECT_TRUE(turned.second.allclose(differences(dparams_, dx_), 1e-7, 1e-8));
}

TEST_F(JvpTest, ReturnsTreesAndAuxiliaryValues) {
  const auto f = [](const Tensor& x) {
    return WithAux{std::pair(TensorDict({{"sin", x.sin()}}), std::vector<Tensor>{x.detach(), 3 * x}), x + 1};
  };
  const auto [y, dy, aux] = jvp(f, x_, dx_);
  EXPECT_TRUE(dy.first["sin"].allclose(x_.cos() * dx_));
  EXPECT_TRUE(dy.second[0].equal(torch::zeros_like(x_)));
  EXPECT_TRUE(dy.second[1].allclose(3 * dx_));
  EXPECT_TRUE(aux.equal(x_ + 1));
  EXPECT_FALSE(aux._fw_grad(0).defined());
}

TEST_F(JvpTest, NestsWithGradAndVmap) {
  const auto loss = [](const Tensor& x) { return x.sin().prod(); };
  const Tensor x = random({3}), v = random({3});
  // Forward over reverse, reverse over forward, forward over forward: all are Hessian products.
  const Tensor hv = jvp(grad(loss), x, v).second;
  const auto slope = [&](const Tensor& at) { return jvp(loss, at, v).second; };
  EXPECT_TRUE(grad(slope)(x).allclose(hv));
  EXPECT_TRUE(jvp(slope, x, v).second.allclose(v.dot(hv)));
  const double h = 1e-5;
  EXPECT_TRUE(hv.allclose((grad(loss)(x + h * v) - grad(loss)(x - h * v)) / (2 * h), 1e-6, 1e-8));
  // Along many directions at once.
  const auto along = [&](const Tensor& direction) { return jvp(grad(loss), x, direction).second; };
  const Tensor hessian = vmap(along)(torch::eye(3, torch::kDouble));
  EXPECT_TRUE(hessian.matmul(v).allclose(hv));
  const auto row = [&](const Tensor& at, const Tensor& direction) { return jvp(grad(loss), at, direction).second; };
  const Tensor points = random({5, 3});
  const Tensor rows = vmap(row)(points, points);
  for (int64_t i = 0; i < 5; ++i) EXPECT_TRUE(rows[i].allclose(row(points[i], points[i])));
}

TEST_F(JvpTest, ZeroTangentsAreUsedInLevelsOutside) {
  const auto inner = [](const Tensor& y) { return jvp([](const Tensor& z) { return z.detach(); }, y, y).second; };
  const auto outer = [&](const Tensor& x) { return jvp(inner, x.square(), x).first.flip(0).sum(); };
  const Tensor x = random({3});
  EXPECT_TRUE(grad(outer)(x).equal(torch::zeros_like(x)));
}

TEST_F(JvpTest, DifferentiatesBackwardPassesThatReuseAFactorization) {
  const Tensor a = random({3, 3}) + 5 * torch::eye(3, torch::kDouble), b = random({3}), v = random({3, 3});
  const auto solve = [&](const Tensor& matrix) { return torch::linalg_solve(matrix, b); };
  const auto loss = [&](const Tensor& matrix) { return solve(matrix).sin().sum(); };
  const auto pulled_back = [&](const Tensor& matrix) { return vjp(solve, matrix).second(b); };
  const double h = 1e-5;
  for (const std::function<Tensor(const Tensor&)>& f :
       {std::function<Tensor(const Tensor&)>(grad(loss)), std::function<Tensor(const Tensor&)>(pulled_back)}) {
    EXPECT_TRUE(jvp(f, a, v).second.allclose((f(a + h * v) - f(a - h * v)) / (2 * h), 1e-6, 1e-8));
  }
}

TEST_F(JvpTest, IsDifferentiatedByOrdinaryAutograd) {
  const Tensor x = x_.clone().requires_grad_();
  const auto [y, dy] = jvp<1>(layer, std::tuple(params_, x), dx_);
  const Tensor by_tangent = torch::autograd::grad({dy.sum()}, {x})[0];
  const auto slope = [&](const Tensor& at) { return jvp<1>(layer, std::tuple(params_, at), dx_).second.sum(); };
  EXPECT_TRUE(by_tangent.allclose(grad(slope)(x_)));
}

TEST_F(JvpTest, RunsOnManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  const Tensor expected = differences(dparams_, dx_);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const auto [y, dy] = jvp(layer, std::tuple(params_, x_), std::tuple(dparams_, dx_));
        if (dy.allclose(expected, 1e-7, 1e-8)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 800);
}

TEST_F(JvpTest, SharesTheLevelOfTheProgram) {
  const uint64_t level = ForwardADLevel::get_next_idx();
  const Tensor dual = at::_make_dual(x_, dx_, static_cast<int64_t>(level));
  const auto [y, dy] = jvp([](const Tensor& x) { return x.sin(); }, x_, dx_);
  EXPECT_TRUE(dy.allclose(x_.cos() * dx_));
  EXPECT_TRUE(std::get<1>(at::_unpack_dual(dual.sin(), static_cast<int64_t>(level))).allclose(x_.cos() * dx_));
  ForwardADLevel::release_idx(level);
}

TEST_F(JvpTest, WorksInInferenceMode) {
  const c10::InferenceMode inference;
  const auto [y, dy] = jvp(layer, std::tuple(params_, x_), std::tuple(dparams_, dx_));
  EXPECT_TRUE(y.equal(layer(params_, x_)));
  EXPECT_TRUE(dy.allclose(differences(dparams_, dx_), 1e-7, 1e-8));
}

TEST_F(JvpTest, LeavesNoTraceAfterAnException) {
  const auto f = [](const Tensor&) -> Tensor { throw std::runtime_error("body"); };
  EXPECT_THROW(jvp(f, x_, dx_), std::runtime_error);
}

TEST_F(JvpTest, NamesWhatDoesNotFit) {
  EXPECT_THAT(
      [&] {
        jvp(layer, std::tuple(params_, x_), std::tuple(TensorDict({{"w", dparams_["w"]}}), random({2})));
      },
      ThrowsWith<c10::ValueError>("jvp: the tangents do not fit the arguments", "\"b\"",
                                  "[1]:", "shape [2], expected [4, 3]"));
  EXPECT_THAT([&] { jvp([](const Tensor& x) { return x; }, torch::ones({2}, torch::kLong), torch::ones({2})); },
              ThrowsWith<c10::TypeError>("jvp: these tensors have no derivative", "argument 0: Long"));
}

}  // namespace
}  // namespace graft
