// The losses under transforms equal the loop over samples, without LibTorch's own loop.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "functional/grad.h"
#include "vmap/vmap.h"

// Declared in ATen/functorch/BatchedFallback.h, which no test includes.
namespace at::functorch {
bool isVmapFallbackEnabled();
void setVmapFallbackEnabled(bool enabled);
}  // namespace at::functorch

namespace graft {
namespace {

/// Makes an operator without a batching rule an error, as long as it lives.
class NoFallback {
 public:
  NoFallback() { at::functorch::setVmapFallbackEnabled(false); }
  ~NoFallback() { at::functorch::setVmapFallbackEnabled(was_enabled_); }

 private:
  const bool was_enabled_ = at::functorch::isVmapFallbackEnabled();
};

using Loss = std::function<Tensor(const Tensor&, const Tensor&)>;

bool near(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12); }

/// Compares the loss and its gradient with the loop over the samples: both arguments mapped, and each alone.
void expect_equals_loop(const Loss& loss, const Tensor& x, const Tensor& t) {
  const NoFallback no_fallback;
  auto scalar = [&](const Tensor& a, const Tensor& b) { return loss(a, b).sum(); };
  for (const auto& [map_x, map_t] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    const Tensor x_in = map_x ? x : x[0], t_in = map_t ? t : t[0];
    const VmapOptions options{.in_dims = {map_x ? MappedDim(0) : std::nullopt, map_t ? MappedDim(0) : std::nullopt}};
    const Tensor value = vmap(loss, options)(x_in, t_in);
    const Tensor gradient = vmap(grad(scalar), options)(x_in, t_in);
    auto total = [&](const Tensor& a, const Tensor& b) { return vmap(loss, options)(a, b).sum(); };
    const Tensor total_gradient = grad(total)(x_in, t_in);
    std::vector<Tensor> gradients;
    for (int64_t i = 0; i < x.size(0); ++i) {
      const Tensor leaf = (map_x ? x[i] : x_in).clone().set_requires_grad(true);
      const Tensor single = loss(leaf, map_t ? t[i] : t_in);  // No transform: LibTorch's own kernels.
      single.sum().backward();
      EXPECT_TRUE(near(value[i], single.detach()));
      EXPECT_TRUE(near(gradient[i], leaf.grad()));
      gradients.push_back(leaf.grad());
    }
    const Tensor expected = at::stack(gradients);
    EXPECT_TRUE(near(total_gradient, map_x ? expected : expected.sum(0)));
  }
}

constexpr int64_t kReductions[] = {at::Reduction::None, at::Reduction::Mean, at::Reduction::Sum};

TEST(LossesTest, OfDifferencesEqualTheLoop) {
  at::manual_seed(0);
  const Tensor x = 2 * at::randn({3, 5}, at::kDouble), t = at::randn({3, 5}, at::kDouble);
  for (const int64_t r : kReductions) {
    expect_equals_loop([r](auto& a, auto& b) { return at::mse_loss(a, b, r); }, x, t);
    expect_equals_loop([r](auto& a, auto& b) { return at::huber_loss(a, b, r, 0.7); }, x, t);
    expect_equals_loop([r](auto& a, auto& b) { return at::smooth_l1_loss(a, b, r, 0.7); }, x, t);
    expect_equals_loop([r](auto& a, auto& b) { return at::smooth_l1_loss(a, b, r, 0); }, x, t);
    expect_equals_loop([r](auto& a, auto& b) { return at::soft_margin_loss(a, b, r); }, x, t.sign());
  }
}

TEST(LossesTest, OfClassesEqualTheLoop) {
  at::manual_seed(0);
  const Tensor weight = at::rand({4}, at::kDouble) + 0.5;
  for (const auto& shape : {std::vector<int64_t>{3, 6, 4}, std::vector<int64_t>{3, 6, 4, 2, 2}}) {
    const Tensor x = at::randn(shape, at::kDouble);
    Tensor t = at::randint(0, 4, x.select(2, 0).sizes(), at::kLong);
    t.select(1, 1).fill_(2);
    t.select(1, 0).fill_(-100);
    for (const int64_t r : kReductions) {
      for (const std::optional<Tensor>& w : {std::optional<Tensor>(), std::optional<Tensor>(weight)}) {
        expect_equals_loop([&](auto& a, auto& b) { return at::nll_loss_nd(a, b, w, r); }, x, t);
        for (const double smoothing : {0.0, 0.2}) {
          expect_equals_loop([&](auto& a, auto& b) { return at::cross_entropy_loss(a, b, w, r, -100, smoothing); }, x,
                             t);
        }
      }
    }
  }
}

TEST(LossesTest, OfClassProbabilitiesEqualTheLoop) {
  at::manual_seed(0);
  const Tensor x = at::randn({3, 6, 4}, at::kDouble), t = at::randn({3, 6, 4}, at::kDouble).softmax(-1);
  for (const int64_t r : kReductions) {
    expect_equals_loop([r](auto& a, auto& b) { return at::cross_entropy_loss(a, b, {}, r, -100, 0.1); }, x, t);
  }
}

TEST(LossesTest, OfOneSampleWithoutBatchDimEqualTheLoop) {
  at::manual_seed(0);
  const Tensor x = at::randn({3, 4}, at::kDouble), t = at::randint(0, 4, {3}, at::kLong);
  expect_equals_loop([](auto& a, auto& b) { return at::cross_entropy_loss(a, b); }, x, t);
}

TEST(LossesTest, DoNotLetIgnoredTargetsPoisonGradients) {
  Tensor x = at::zeros({1, 2, 3}, at::kDouble);
  x[0][0][0] = -std::numeric_limits<double>::infinity();
  const Tensor t = at::full({1, 2}, 1, at::kLong);
  t[0][0] = -100;
  const Tensor gradient = vmap(grad([](const Tensor& a, const Tensor& b) { return at::nll_loss(a, b); }))(x, t);
  EXPECT_TRUE(gradient.isfinite().all().item<bool>());
}

TEST(LossesTest, AreRegistered) {
  for (const char* name : {"mse_loss", "huber_loss", "smooth_l1_loss", "soft_margin_loss", "nll_loss", "nll_loss2d",
                           "nll_loss_nd", "cross_entropy_loss"}) {
    const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), "");
    EXPECT_TRUE(op.hasKernelForDispatchKey(c10::DispatchKey::FuncTorchDynamicLayerFrontMode)) << name;
  }
}

}  // namespace
}  // namespace graft
