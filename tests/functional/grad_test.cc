#include "functional/grad.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "tensordict/internal/transformed.h"

namespace graft {
namespace {

using ::testing::HasSubstr;

Tensor random(at::IntArrayRef sizes, uint64_t seed = 0) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kDouble);
}

bool near(const Tensor& a, const Tensor& b, double tolerance = 1e-12) {
  return a.sizes() == b.sizes() && at::allclose(a, b, tolerance, tolerance);
}

Tensor product_loss(const Tensor& w, const Tensor& x) { return (w * x).tanh().square().sum(); }

Tensor autograd_of(const Tensor& loss, const Tensor& input) {
  return torch::autograd::grad({loss}, {input}, {}, std::nullopt, /*create_graph=*/true)[0];
}

TEST(GradTest, EqualsAutograd) {
  const Tensor w = random({4}), x = random({4}, 1);
  const Tensor leaf = w.clone().set_requires_grad(true);
  EXPECT_TRUE(near(grad(product_loss)(w, x), autograd_of(product_loss(leaf, x), leaf).detach()));
}

TEST(GradTest, EqualsFiniteDifferences) {
  const Tensor w = random({4}), x = random({4}, 1), step = 1e-6 * at::eye(4, at::kDouble);
  const Tensor gradient = grad(product_loss)(w, x);
  for (int i = 0; i < 4; ++i) {
    const Tensor slope = (product_loss(w + step[i], x) - product_loss(w - step[i], x)) / 2e-6;
    EXPECT_TRUE(near(gradient[i], slope, 1e-8));
  }
}

TEST(GradTest, TakesTheArgumentsByNumber) {
  const Tensor w = random({4}), x = random({4}, 1);
  const auto [gw, gx] = grad<0, -1>(product_loss)(w, x);
  EXPECT_TRUE(near(gw, grad(product_loss)(w, x)));
  EXPECT_TRUE(near(gx, grad<1>(product_loss)(w, x)));
  EXPECT_TRUE(near(gx, grad<0>(product_loss)(x, w)));
}

TEST(GradTest, HasTheTypeOfTheArgument) {
  const TensorDict params({{"layer.w", random({2, 3})}, {"layer.b", random({2}, 1)}});
  auto loss = [](const TensorDict& p) { return p["layer.w"].square().sum() + p["layer.b"].sum(); };
  const TensorDict gradient = grad(loss)(params);
  EXPECT_TRUE(near(gradient["layer.w"], 2 * params["layer.w"]));
  EXPECT_TRUE(near(gradient["layer.b"], at::ones({2}, at::kDouble)));
}

TEST(GradTest, ReturnsTheAuxiliaryResultDetachedFromTheLevel) {
  const Tensor x = random({3});
  auto f = [](const Tensor& v) { return std::pair(v.square().sum(), std::vector<Tensor>{2 * v}); };
  const auto [gradient, aux] = grad(f)(x);
  EXPECT_TRUE(near(gradient, 2 * x));
  EXPECT_TRUE(near(aux[0], 2 * x));
  EXPECT_FALSE(aux[0].requires_grad());
  EXPECT_FALSE(internal::is_transformed(aux[0]));
}

TEST(GradTest, ReturnsTheValueFirst) {
  const Tensor x = random({3});
  const auto [result, gradient] = value_and_grad([](const Tensor& v) { return std::pair(v.square().sum(), v + 1); })(x);
  EXPECT_TRUE(near(result.first, x.square().sum()));
  EXPECT_TRUE(near(result.second, x + 1));
  EXPECT_TRUE(near(gradient, 2 * x));
}

TEST(GradTest, IsZeroForUnusedArguments) {
  const Tensor x = random({3}), constant = at::ones({}, at::kDouble).set_requires_grad(true);
  EXPECT_TRUE(near(grad<1>([](const Tensor& a, const Tensor&) { return a.sum(); })(x, x), at::zeros_like(x)));
  EXPECT_TRUE(near(grad([&](const Tensor&) { return constant; })(x), at::zeros_like(x)));
}

TEST(GradTest, NestsInItself) {
  const Tensor x = random({}), leaf = x.clone().set_requires_grad(true);
  auto f = [](const Tensor& v) { return v.sin() * v; };
  const Tensor second = autograd_of(autograd_of(f(leaf), leaf), leaf);
  EXPECT_TRUE(near(grad(grad(f))(x), second.detach()));
  at::NoGradGuard no_grad;
  EXPECT_TRUE(near(grad(grad(f))(x), second));
}

TEST(GradTest, IsDifferentiatedByOrdinaryAutograd) {
  const Tensor w = random({4}).set_requires_grad(true), x = random({4}, 1).set_requires_grad(true);
  const Tensor first = autograd_of(product_loss(w, x), w);
  const Tensor gradient = grad(product_loss)(w, x);
  EXPECT_TRUE(near(autograd_of(gradient.square().sum(), w), autograd_of(first.square().sum(), w)));
  EXPECT_TRUE(near(autograd_of(grad(product_loss)(w.detach(), x).sum(), x), autograd_of(first.sum(), x)));
}

TEST(GradTest, IgnoresNoGradOutsideAndRespectsItInside) {
  const Tensor x = random({3}).set_requires_grad(true);
  auto cube = [](const Tensor& v) { return v.pow(3).sum(); };
  {
    at::NoGradGuard no_grad;
    const Tensor gradient = grad(cube)(x);
    EXPECT_TRUE(near(gradient, 3 * x.square()));
    EXPECT_FALSE(gradient.requires_grad());
  }
  auto half = [](const Tensor& v) {
    at::NoGradGuard no_grad;
    return v.sum();
  };
  EXPECT_TRUE(near(grad([&](const Tensor& v) { return v.sum() + half(v); })(x), at::ones_like(x)));
}

TEST(GradTest, WorksInInferenceMode) {
  c10::InferenceMode inference;
  const Tensor x = random({3});
  EXPECT_TRUE(near(grad([](const Tensor& v) { return v.square().sum(); })(x), 2 * x));
  EXPECT_TRUE(c10::InferenceMode::is_enabled());
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST(GradTest, PassesOpaqueArgumentsByReference) {
  const Tensor x = random({3});
  int calls = 0;
  grad([](const Tensor& v, int& count) { return ++count, v.sum(); })(x, calls);
  EXPECT_EQ(calls, 1);
}

template <class Error, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(GradTest, NamesWhatCannotBeDifferentiated) {
  const TensorDict params({{"w", random({2})}, {"bn.count", at::zeros({}, at::kLong)}});
  auto loss = [](const TensorDict& p) { return p["w"].sum(); };
  EXPECT_THAT(message_of<c10::TypeError>([&] { grad(loss)(params); }), HasSubstr("bn.count"));
  EXPECT_THAT(message_of<c10::ValueError>([] { grad([](const Tensor& v) { return v * 2; })(random({3})); }),
              HasSubstr("shape [3]"));
}

TEST(GradTest, LeavesNoTraceAfterAnException) {
  const Tensor x = random({3});
  at::NoGradGuard no_grad;
  auto throwing = [](const Tensor&) -> Tensor { throw std::runtime_error("user"); };
  EXPECT_THROW(grad(throwing)(x), std::runtime_error);
  EXPECT_THROW(grad(grad(throwing))(x), std::runtime_error);
  EXPECT_THROW(grad([](const Tensor& v) { return v * 2; })(x), c10::ValueError);
  EXPECT_EQ(internal::depth(), 0);
  EXPECT_FALSE(at::GradMode::is_enabled());
}

}  // namespace
}  // namespace graft
