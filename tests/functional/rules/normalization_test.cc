// Normalizations under every transform, and what of batch norm stays refused.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "functional/grad.h"
#include "functional/jvp.h"
#include "tests/functional/rules/set_ups.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

using ::testing::HasSubstr;

std::function<Tensors()> inputs(std::vector<std::vector<int64_t>> shapes) {
  return [shapes] {
    Tensors all;
    for (const auto& shape : shapes) all.push_back(random(shape));
    return all;
  };
}

TEST(NormalizationTest, SoftmaxIsRight) {
  check_set_ups({.name = "softmax", .f = [](auto& in) { return at::softmax(in[0], 1); }, .make = inputs({{2, 3}})});
  check_set_ups(
      {.name = "log_softmax", .f = [](auto& in) { return at::log_softmax(in[0], 0); }, .make = inputs({{2, 3}})});
  check_set_ups({.name = "softmax of a number",
                 .f = [](auto& in) { return at::softmax(in[0], 0) * in[0]; },
                 .make = inputs({{}})});
}

TEST(NormalizationTest, SoftmaxInAnotherTypeIsRight) {
  const auto in_float = [](auto softmax) {
    return [softmax](const Tensors& in) { return softmax(in[0].to(at::kFloat), 1, at::kDouble).to(at::kDouble); };
  };
  check_set_ups({.name = "softmax to double",
                 .f = in_float([](auto&&... a) { return at::softmax(a...); }),
                 .make = inputs({{2, 3}}),
                 .tolerance = 1e-5});
  check_set_ups({.name = "log_softmax to double",
                 .f = in_float([](auto&&... a) { return at::log_softmax(a...); }),
                 .make = inputs({{2, 3}}),
                 .tolerance = 1e-5});
}

TEST(NormalizationTest, AttentionIsRight) {
  check_set_ups({.name = "attention",
                 .f = [](auto& in) { return std::get<0>(at::_scaled_dot_product_attention_math(in[0], in[1], in[2])); },
                 .make = inputs({{2, 3, 4}, {2, 3, 4}, {2, 3, 4}}),
                 .differentiable = 3});
}

TEST(NormalizationTest, LayerNormIsRight) {
  check_set_ups({.name = "layer_norm",
                 .f = [](auto& in) { return at::layer_norm(in[0], {4}, in[1], in[2]); },
                 .make = inputs({{2, 3, 4}, {4}, {4}}),
                 .differentiable = 3});
  check_set_ups({.name = "layer_norm over all dims",
                 .f =
                     [](auto& in) {
                       return at::layer_norm(in[0], {3, 4}, in[1]);
                     },
                 .make = inputs({{3, 4}, {3, 4}}),
                 .differentiable = 2});
  check_set_ups({.name = "layer_norm without weight",
                 .f =
                     [](auto& in) {
                       return at::layer_norm(in[0], {3, 4}, {}, {}, 0.1);
                     },
                 .make = inputs({{2, 3, 4}})});
  check_set_ups({.name = "layer_norm with bias alone",
                 .f = [](auto& in) { return at::layer_norm(in[0], {4}, {}, in[1]); },
                 .make = inputs({{3, 4}, {4}}),
                 .differentiable = 2});
}

TEST(NormalizationTest, GroupNormAndInstanceNormAreRight) {
  check_set_ups({.name = "group_norm",
                 .f = [](auto& in) { return at::group_norm(in[0], 2, in[1], in[2]); },
                 .make = inputs({{2, 4, 3}, {4}, {4}}),
                 .differentiable = 3});
  check_set_ups({.name = "group_norm without weight",
                 .f = [](auto& in) { return at::group_norm(in[0], 2); },
                 .make = inputs({{2, 4, 3, 2}})});
  check_set_ups({.name = "instance_norm",
                 .f = [](auto& in) { return at::instance_norm(in[0], in[1], in[2], {}, {}, true, 0.1, 1e-5, false); },
                 .make = inputs({{2, 3, 4}, {3}, {3}}),
                 .differentiable = 3});
}

Tensor batch_norm(const Tensors& in, bool train, const std::optional<Tensor>& mean = {},
                  const std::optional<Tensor>& variance = {}) {
  const auto weight = in.size() > 1 ? std::optional<Tensor>(in[1]) : std::nullopt;
  const auto bias = in.size() > 2 ? std::optional<Tensor>(in[2]) : std::nullopt;
  return at::batch_norm(in[0], weight, bias, mean, variance, train, 0.1, 1e-3, false);
}

TEST(NormalizationTest, BatchNormIsRight) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4, 3}, std::vector<int64_t>{2, 3, 2, 2}}) {
    check_set_ups({.name = "batch_norm",
                   .f = [](auto& in) { return batch_norm(in, /*train=*/true); },
                   .make = inputs({shape, {3}, {3}}),
                   .differentiable = 3});
  }
  check_set_ups({.name = "batch_norm without weight",
                 .f = [](auto& in) { return batch_norm(in, /*train=*/true); },
                 .make = inputs({{4, 3}})});
}

TEST(NormalizationTest, BatchNormWithRunningStatisticsIsRightInEvaluation) {
  const Tensor mean = random({3}), variance = random({3}).square() + 0.5;
  check_set_ups({.name = "batch_norm in evaluation",
                 .f = [&](auto& in) { return batch_norm(in, /*train=*/false, mean, variance); },
                 .make = inputs({{4, 3}, {3}, {3}}),
                 .differentiable = 3});
  check_set_ups({.name = "batch_norm in evaluation without weight",
                 .f = [&](auto& in) { return batch_norm(in, /*train=*/false, mean, variance); },
                 .make = inputs({{2, 3, 2}})});
}

/// (x - mean) / sqrt(variance + 1e-3), over `dims`.
Tensor plain_norm(const Tensor& x, at::IntArrayRef dims) {
  return (x - x.mean(dims, true)) / (x.var(dims, /*unbiased=*/false, /*keepdim=*/true) + 1e-3).sqrt();
}

TEST(NormalizationTest, ThirdDerivativesAreRight) {
  using Norm = std::function<Tensor(const Tensor&)>;
  const Tensor x = random({4, 6}), weights = random({4, 6});
  const std::vector<std::pair<Norm, Norm>> norms = {
      {[](auto& in) { return at::layer_norm(in, {6}, {}, {}, 1e-3); }, [](auto& in) { return plain_norm(in, {1}); }},
      {[](auto& in) { return batch_norm({in}, /*train=*/true); }, [](auto& in) { return plain_norm(in, {0}); }},
      {[](auto& in) { return at::group_norm(in, 2, {}, {}, 1e-3); },
       [](auto& in) {
         return plain_norm(in.reshape({4, 2, 3}), {2}).reshape({4, 6});
       }}};
  for (const auto& [norm, plain] : norms) {
    const auto third = [&](const Norm& f) {
      const auto first = grad([&f, &weights](const Tensor& in) { return (f(in).sin() * weights).sum(); });
      const auto second = grad([&](const Tensor& in) { return (first(in) * weights).sum(); });
      return grad([&](const Tensor& in) { return (second(in) * weights).sum(); })(x);
    };
    EXPECT_TRUE(third(norm).allclose(third(plain))) << third(norm) - third(plain);
  }
}

TEST(NormalizationTest, BatchNormTrainsRunningStatisticsUnderForwardMode) {
  const Tensor mean = at::zeros({3}, at::kDouble), variance = at::ones({3}, at::kDouble);
  const OperatorCase test = {.name = "batch_norm with running statistics",
                             .f = [&](auto& in) { return batch_norm(in, /*train=*/true, mean, variance); },
                             .make = inputs({{4, 3}, {3}, {3}}),
                             .differentiable = 3};
  for (const auto& [name, outcome] : run_set_ups(test, {"d", "h1", "h4"})) EXPECT_EQ(outcome, "ok") << name;

  const Tensor x = random({4, 3}), expected = mean * 0.9 + x.mean(0) * 0.1;
  jvp([&](const Tensor& in) { return batch_norm({in}, /*train=*/true, mean, variance); }, x, x);
  EXPECT_TRUE(mean.allclose(expected));
}

TEST(NormalizationTest, BatchNormRefusesToTrainRunningStatisticsThatAreNotMapped) {
  const Tensor mean = at::zeros({3}, at::kDouble), variance = at::ones({3}, at::kDouble);
  const auto f = [&](const Tensor& x) { return batch_norm({x}, /*train=*/true, mean, variance).sum(); };
  const auto expect_refused = [](const auto& call) {
    try {
      call(random({2, 4, 3}));
      ADD_FAILURE() << "not refused";
    } catch (const c10::Error& error) {
      EXPECT_THAT(error.what_without_backtrace(), HasSubstr("running_mean"));
    }
  };
  expect_refused(vmap(f));
  expect_refused(vmap(grad(f)));
  EXPECT_TRUE(mean.eq(0).all().item<bool>());
}

TEST(NormalizationTest, WeightNormIsRight) {
  const auto weight_norm = [](int64_t dim) {
    return [dim](const Tensors& in) { return at::_weight_norm(in[0], in[1], dim); };
  };
  check_set_ups({.name = "_weight_norm of a dim between",
                 .f = weight_norm(1),
                 .make = inputs({{3, 2, 4}, {1, 2, 1}}),
                 .differentiable = 2});
  check_set_ups(
      {.name = "_weight_norm of no dim", .f = weight_norm(-1), .make = inputs({{3, 2}, {}}), .differentiable = 2});
  // Outside transforms these take LibTorch's fused kernel, whose second derivatives are wrong: they differ from finite
  // differences. The rule is the same formula for each dim, so that the cases above show that it is right.
  const Outcomes fused_is_wrong = {{"h1", "wrong by"}, {"h2", "wrong by"}, {"h3", "wrong by"}, {"h4", "wrong by"}};
  check_set_ups({.name = "_weight_norm of the first dim",
                 .f = weight_norm(0),
                 .make = inputs({{3, 2, 4}, {3, 1, 1}}),
                 .differentiable = 2},
                fused_is_wrong);
  check_set_ups(
      {.name = "_weight_norm of the only dim", .f = weight_norm(0), .make = inputs({{3}, {3}}), .differentiable = 2},
      fused_is_wrong);
  check_set_ups({.name = "norm_except_dim",
                 .f = [](auto& in) { return at::norm_except_dim(in[0], 3, 1); },
                 .make = inputs({{3, 2}})});
}

TEST(NormalizationTest, NormIsRight) {
  const auto make = inputs({{2, 3}});
  check_set_ups({.name = "norm", .f = [](auto& in) { return at::norm(in[0]); }, .make = make});
  check_set_ups({.name = "norm method", .f = [](auto& in) { return in[0].norm(); }, .make = make});
  check_set_ups({.name = "norm 2", .f = [](auto& in) { return at::norm(in[0], 2); }, .make = make});
  check_set_ups({.name = "norm 3", .f = [](auto& in) { return at::norm(in[0], 3); }, .make = make});
  check_set_ups({.name = "norm 1", .f = [](auto& in) { return at::norm(in[0], 1); }, .make = make});
  check_set_ups(
      {.name = "norm with a type", .f = [](auto& in) { return at::norm(in[0], 2, at::kDouble); }, .make = make});
  check_set_ups({.name = "norm of dims", .f = [](auto& in) { return at::norm(in[0], 2, {0}); }, .make = make});
}

}  // namespace
}  // namespace graft::testing
