// Attention under transforms equals LibTorch's own code without. The Hessian set-ups differentiate softmax twice, so
// they are tested with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

void check_first_derivatives(const OperatorCase& test) {
  for (const auto& [name, outcome] : run_set_ups(test, {"b", "b1", "b2", "c", "d", "e1", "e2"})) {
    EXPECT_EQ(outcome, "ok") << test.name << ", " << name;
  }
}

// --- equal

/// Says whether x[i] and y[i] are equal, for each i, as one answer.
bool all_equal(const Tensor& x, const Tensor& y) {
  bool answer = false;
  vmap([&](const Tensor& a, const Tensor& b) {
    answer = a.equal(b);
    return a;
  })(x, y);
  return answer;
}

TEST(EqualTest, GivesOneAnswerForAllSamples) {
  const Tensor x = random({3, 2});
  EXPECT_TRUE(all_equal(x, x.clone()));
  EXPECT_FALSE(all_equal(x, x + 1));
  EXPECT_FALSE(all_equal(x, random({3, 4})));
}

TEST(EqualTest, OfATensorWithItselfIsTrueWhateverItHolds) {
  Tensor x = random({3, 2});
  x[1][0] = std::numeric_limits<double>::quiet_NaN();
  vmap([](const Tensor& sample) {
    EXPECT_TRUE(sample.equal(sample));
    return sample;
  })(x);
}

TEST(EqualTest, IsAnErrorWhereSamplesDiffer) {
  const Tensor x = random({3, 2}), y = x.clone();
  y[1][0] = 7;
  EXPECT_THAT([&] { all_equal(x, y); }, ThrowsWith<c10::Error>("equal in some samples of a vmap and not in others"));
}

TEST(EqualTest, LooksThroughSeveralLevels) {
  const Tensor x = random({3, 2}), y = random({4, 2});
  const auto inner = [](const Tensor& a, const Tensor& b) {
    EXPECT_FALSE(a.equal(b));
    EXPECT_TRUE((a + b).equal(b + a));
    return (a * b).sum();
  };
  vmap([&](const Tensor& a) { return vmap(grad(inner), {.in_dims = {std::nullopt, 0}})(a, y); })(x);
}

// --- Modules

TEST(MultiheadAttentionTest, EqualsTheLoop) {
  torch::nn::MultiheadAttention attention(torch::nn::MultiheadAttentionOptions(4, 2));
  attention->to(torch::kDouble);
  check_first_derivatives({.name = "self-attention",
                           .f =
                               [&](const Tensors& in) {
                                 const Tensor x = in[0] * in[1];
                                 return std::get<0>(attention->forward(x, x, x));
                               },
                           .make =
                               [] {
                                 return Tensors{random({3, 2, 4}), random({4})};
                               },
                           .differentiable = 2});
}

TEST(TransformerTest, EqualsTheLoop) {
  torch::nn::Transformer transformer(torch::nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(3).dropout(0));
  transformer->to(torch::kDouble);
  check_first_derivatives({.name = "transformer",
                           .f = [&](const Tensors& in) { return transformer->forward(in[0], in[1]); },
                           .make =
                               [] {
                                 return Tensors{random({3, 1, 4}), random({2, 1, 4})};
                               },
                           .differentiable = 2});
}

// --- scaled_dot_product_attention

struct AttentionOptions {
  std::string name;
  int64_t heads = 2;  ///< of the query; key and value have 2
  std::optional<at::ScalarType> mask = std::nullopt;
  bool is_causal = false;
  std::optional<double> scale = std::nullopt;
};

OperatorCase attention_case(const AttentionOptions& options) {
  OperatorCase test;
  test.name = options.name;
  test.make = [=] {
    Tensors in = {random({options.heads, 3, 2}), random({2, 4, 2}), random({2, 4, 2})};
    if (!options.mask) return in;
    // Every query sees something.
    in.push_back(options.mask == at::kBool ? random({3, 4}).gt(0).index_fill(1, at::tensor({0}, at::kLong), true)
                                           : random({3, 4}));
    return in;
  };
  test.f = [=](const Tensors& in) {
    const std::optional<Tensor> mask = options.mask ? in[3] : std::optional<Tensor>();
    return at::scaled_dot_product_attention(in[0].unsqueeze(0), in[1].unsqueeze(0), in[2].unsqueeze(0), mask,
                                            /*dropout_p=*/0, options.is_causal, options.scale,
                                            /*enable_gqa=*/options.heads != 2);
  };
  test.differentiable = 3;
  return test;
}

TEST(ScaledDotProductAttentionTest, EqualsTheLoop) {
  const std::vector<AttentionOptions> all = {{.name = "plain"},
                                             {.name = "bool mask", .mask = at::kBool},
                                             {.name = "mask", .mask = at::kDouble},
                                             {.name = "causal", .is_causal = true},
                                             {.name = "scale", .scale = 0.3},
                                             {.name = "more heads of the query", .heads = 4}};
  for (const AttentionOptions& options : all) check_first_derivatives(attention_case(options));
}

TEST(ScaledDotProductAttentionTest, DropsByTheRandomnessOfVmap) {
  const Tensor q = random({1, 2, 3, 2}).expand({3, -1, -1, -1});
  const auto drop = [](const Tensor& x) { return at::scaled_dot_product_attention(x, x, x, {}, /*dropout_p=*/0.5); };
  const Tensor same = vmap(drop, {.randomness = Randomness::kSame})(q);
  EXPECT_TRUE(same[0].equal(same[1]));
  const Tensor different = vmap(drop, {.randomness = Randomness::kDifferent})(q);
  EXPECT_FALSE(different[0].equal(different[1]));
}

TEST(ScaledDotProductAttentionTest, ChecksItsArguments) {
  const Tensor x = random({3, 2, 3, 2});
  const auto call = [&](const Tensor& key, const std::optional<Tensor>& mask, bool is_causal) {
    return [=] {
      vmap([&](const Tensor& q) { return at::scaled_dot_product_attention(q, key, key, mask, 0, is_causal); })(x);
    };
  };
  const Tensor key = random({2, 3, 2});
  EXPECT_THAT(call(key.to(at::kFloat), {}, false), ThrowsWith<c10::Error>("to have the same dtype"));
  EXPECT_THAT(call(key[0][0], {}, false), ThrowsWith<c10::Error>("at least 2 dimensional"));
  EXPECT_THAT(call(key, at::ones({3, 3}, at::kLong), false), ThrowsWith<c10::Error>("Expected attn_mask dtype"));
  EXPECT_THAT(call(key, at::ones({3, 3}, at::kBool), true),
              ThrowsWith<c10::Error>("attn_mask should not be set when is_causal"));
}

}  // namespace
}  // namespace graft::testing
