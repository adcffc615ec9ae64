// Layers and losses under transforms, with values computed by other means: written-out formulas, loops over positions,
// finite differences.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "functional/batch_norm.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/hvp.h"
#include "functional/jvp.h"
#include "functional/module_state.h"
#include "functional/stop_gradient.h"
#include "functional/to_module.h"
#include "functional/vjp.h"
#include "tensordict/autograd.h"
#include "tensordict/join.h"
#include "tensordict/map.h"
#include "tests/testing/numbers.h"
#include "tests/testing/tensordict_matchers.h"
#include "vmap/jacobian.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

namespace F = torch::nn::functional;
using torch::Tensor;
using torch::indexing::None;
using torch::indexing::Slice;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNormOptions;
using Shape = std::vector<int64_t>;
using Values = std::vector<double>;

constexpr auto kNotMapped = std::nullopt;

/// Returns all elements of the leaves, in order.
Values list_of_leaves(const TensorDict& tree) {
  std::vector<Tensor> flat;
  for (const auto& [path, leaf] : tree.leaves()) flat.push_back(leaf.flatten());
  return list_of(torch::cat(flat));
}

// --- Recurrent layers

/// Runs a layer on three sequences of two steps. `last` has its last outputs, `by_weight` and `by_bias` the squared
/// norms of each sample's gradients by the weights of the input and by the bias of the hidden state.
template <class Recurrent>
void expect_each_sequence_to_be_as_in_a_loop(const Values& last, const Values& by_weight, const Values& by_bias) {
  Recurrent layer(1, 2);
  TensorDict params;
  for (const std::string name : {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"}) {
    const Tensor like = from_module(*layer)[name];
    const double shift = 0.1 * static_cast<double>(params.size());
    params.set(name, torch::linspace(-0.5, 0.5, like.numel(), torch::kDouble).view_as(like) + shift);
  }
  const Tensor x = numbers({1, -1, 0.5, 2, 0, 0}, {3, 2, 1});
  const auto outputs = [&](const TensorDict& p, const Tensor& sequence) {
    return std::get<0>(functional_call(layer, p, sequence.unsqueeze(1))).squeeze(1);
  };
  const auto last_output = [&](const Tensor& sequence) { return outputs(params, sequence)[-1]; };
  EXPECT_THAT(list_of(vmap(last_output)(x)), Near(last, 1e-10));
  const auto loss = [&](const TensorDict& p, const Tensor& sequence) { return outputs(p, sequence).square().sum(); };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {kNotMapped, 0}})(params, x);
  EXPECT_THAT(list_of(gradients["weight_ih_l0"].square().sum({1, 2})), Near(by_weight, 1e-10));
  EXPECT_THAT(list_of(gradients["bias_hh_l0"].square().sum(1)), Near(by_bias, 1e-10));
}

TEST(RecurrentSamplesTest, OfAnLstmAreAsInALoop) {
  expect_each_sequence_to_be_as_in_a_loop<torch::nn::LSTM>(
      {0.2515249094, 0.3752679806, 0.1662402427, 0.3675636358, 0.2478027236, 0.4099731588},
      {0.0100447457, 0.1114306696, 0}, {0.1429272056, 0.0950985889, 0.1695825029});
}

TEST(RecurrentSamplesTest, OfAGruAreAsInALoop) {
  expect_each_sequence_to_be_as_in_a_loop<torch::nn::GRU>(
      {0.4069069018, 0.4065405458, 0.5569462077, 0.4610051796, 0.4258121494, 0.4394200642},
      {0.0683798839, 0.4981266324, 0}, {0.200771725, 0.2621769786, 0.1988241186});
}

TEST(RecurrentSamplesTest, OfAnRnnAreAsInALoop) {
  expect_each_sequence_to_be_as_in_a_loop<torch::nn::RNN>(
      {0.2358444035, 0.8799000466, -0.8639457993, 0.9939081771, -0.3587899336, 0.9579055805},
      {1.3050020355, 1.4675675474, 0}, {0.3510520376, 1.24216603, 1.5192794335});
}

// --- Embeddings

TEST(EmbeddingMembersTest, TakeTheirOwnWordsAndGiveGradientsToPaddingOnlyIfItIsNone) {
  torch::nn::Embedding padded(torch::nn::EmbeddingOptions(4, 2).padding_idx(0)), plain(4, 2);
  const Tensor w = iota({2, 4, 2}), words = torch::tensor({1, 1, 0, 2, 0, 3, 0, 0, 0}).view({3, 3});
  const Tensor factors = numbers({1, 10, 100}, {3, 1});
  const auto sum = [&](const Tensor& weight, const Tensor& ids) {
    return functional_call(padded, TensorDict({{"weight", weight}}), ids).sum(0);
  };
  EXPECT_THAT(list_of(vmap(sum)(w, words.slice(0, 0, 2))), Near({4, 7, 34, 37}));

  const auto loss_of = [&](auto& table) {
    return [&](const Tensor& weight, const Tensor& ids) {
      return (functional_call(table, TensorDict({{"weight", weight}}), ids) * factors).sum();
    };
  };
  const Tensor by_member = vmap(grad(loss_of(padded)), {.in_dims = {0, kNotMapped}})(w, words);
  for (int member = 0; member < 2; ++member) {
    EXPECT_THAT(list_of(by_member[member]), Near({0, 0, 11, 11, 1, 1, 100, 100}));
  }
  const Tensor by_sample = vmap(grad(loss_of(plain)), {.in_dims = {kNotMapped, 0}})(w[0], words);
  EXPECT_THAT(list_of(by_sample.select(1, 0).select(1, 0)), Near({100, 10, 111}));
}

// --- Attention

TEST(MaskedAttentionTest, OfMembersAndSamplesIsTheSoftmaxFormula) {
  torch::nn::MultiheadAttention layer(2, 1);
  layer->eval();
  const auto member = [](double scale) {
    const Tensor identity = torch::eye(2, torch::kDouble);
    return TensorDict({{"in_proj_weight", torch::cat({identity, identity, identity}) * scale},
                       {"in_proj_bias", torch::zeros({6}, torch::kDouble)},
                       {"out_proj.weight", identity},
                       {"out_proj.bias", numbers({0.5, 0.5}, {2})}});
  };
  const Tensor x = numbers({1, 0, 0, 1, 1, 1, 2, 0, 0, -1, 3, 3}, {2, 3, 2});
  const Tensor padding = torch::tensor({false, false, false, false, false, true}).view({2, 3});
  const auto attend = [&](const TensorDict& p, const Tensor& sample, const Tensor& mask) {
    const Tensor input = sample.unsqueeze(1);
    const auto result = functional_call(layer, p, input, input, input, mask.unsqueeze(0), /*need_weights=*/false);
    return std::get<0>(result).squeeze(1);
  };
  const auto all_samples = vmap(attend, {.in_dims = {kNotMapped, 0, 0}});
  const Tensor y =
      vmap(all_samples, {.in_dims = {0, kNotMapped, kNotMapped}})(stack({member(1), member(2)}), x, padding);
  ASSERT_EQ(y.sizes(), Shape({2, 2, 3, 2}));
  EXPECT_THAT(list_of(y), Near({1.3022241854, 1.0988879073, 1.0988879073, 1.3022241854,  1.2517449217, 1.2517449217,
                                2.3883855616, 0.4441927808, 1.1604769013, -0.1697615493, 2.4965608636, 0.4982804318,
                                2.4425908585, 1.5287045707, 1.5287045707, 2.4425908585,  2.39428521,   2.39428521,
                                4.4999511827, 0.4999755914, 0.7232288768, -1.3883855616, 4.5,          0.5},
                               1e-10));

  const auto loss = [&](const TensorDict& p, const Tensor& sample, const Tensor& mask) {
    return attend(p, sample, mask).square().sum();
  };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {kNotMapped, 0, 0}})(member(1), x, padding);
  EXPECT_THAT(list_of(gradients["out_proj.bias"]),
              Near({7.3057140288, 7.3057140288, 12.0908466532, 1.5454233266}, 1e-10));
  EXPECT_NEAR(gradients["in_proj_weight"][1][0][0].item<double>(), 1.63622797, 1e-8);
}

// --- Convolutions

struct ConvolutionCase {
  bool is_input_mapped;
  std::optional<bool> is_bias_mapped;  // none: no bias
  double sum, sum_by_position;
};

/// Maps `convolve(input, weight, bias)` over weights, and in each case over what it says.
template <class Convolve>
void expect_sums(const Convolve& convolve, const Tensor& weights, const Tensor& biases, const Shape& shape,
                 const std::vector<ConvolutionCase>& cases) {
  const Tensor x = iota({2, 4, 5}).remainder(7) - 3, inputs = torch::stack({x, x * 2, x + 1});
  for (const ConvolutionCase& c : cases) {
    const MappedDim of_input = c.is_input_mapped ? MappedDim(0) : kNotMapped;
    const MappedDim of_bias = c.is_bias_mapped.value_or(false) ? MappedDim(0) : kNotMapped;
    const Tensor input = c.is_input_mapped ? inputs : x;
    Tensor bias;
    if (c.is_bias_mapped) bias = *c.is_bias_mapped ? biases : biases[1];
    const Tensor y = vmap(convolve, {.in_dims = {of_input, 0, of_bias}})(input, weights, bias);
    ASSERT_EQ(y.sizes(), shape);
    EXPECT_EQ(y.sum().template item<double>(), c.sum);
    EXPECT_EQ((y * iota(shape)).sum().template item<double>(), c.sum_by_position);
  }
}

TEST(GroupedConvolutionTest, OfMappedWeightsKeepsGroupsAndSamplesApart) {
  const auto convolve = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return F::conv1d(x, weight, F::Conv1dFuncOptions().bias(bias).stride(2).padding(1).groups(2));
  };
  expect_sums(convolve, iota({3, 4, 2, 2}).remainder(5) - 2, iota({3, 4}), {3, 2, 4, 3},
              {{true, std::nullopt, 116, 3493},
               {false, std::nullopt, 71, 1900},
               {true, true, 512, 22429},
               {false, false, 467, 16228}});
}

TEST(GroupedConvolutionTest, TransposedKeepsGroupsAndSamplesApartToo) {
  const auto convolve = [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
    return F::conv_transpose1d(
        x, weight, F::ConvTranspose1dFuncOptions().bias(bias).stride(2).padding(1).output_padding(1).groups(2));
  };
  expect_sums(convolve, iota({3, 4, 3, 2}).remainder(5) - 2, iota({3, 6}), {3, 2, 6, 9},
              {{true, std::nullopt, -62, -17064},
               {false, std::nullopt, -43, -13078},
               {true, true, 2692, 576180},
               {false, false, 2711, 440198}});
}

TEST(ConvolutionSamplesTest, WithStrideDilationGroupsAndARemainderHaveTheGradientsOfALoopOverPositions) {
  torch::nn::Conv2d layer(torch::nn::Conv2dOptions(4, 2, {2, 3}).stride({2, 3}).dilation({2, 1}).padding(1).groups(2));
  const TensorDict params({{"weight", iota({2, 2, 2, 3}).remainder(7) - 3}, {"bias", numbers({1, -1}, {2})}});
  const Tensor x = (iota({3, 4, 6, 8}) * 7).remainder(11) - 5;
  const auto loss = [&](const TensorDict& p, const Tensor& sample) {
    const Tensor all = functional_call(layer, p, sample.unsqueeze(0)).squeeze(0);
    const Tensor y = all.index({Slice(), Slice(None, None, 2), Slice(1)});
    return (y * (iota(y.sizes().vec()) + 1)).sum() + y.square().sum() / 2;
  };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {kNotMapped, 0}})(params, x);
  EXPECT_THAT(list_of(gradients["bias"]), Near({-25, -7, -33, 74, 14, 45}));
  const Tensor by_weight = gradients["weight"];
  ASSERT_EQ(by_weight.sizes(), Shape({3, 2, 2, 2, 3}));
  EXPECT_THAT(list_of(by_weight.index({Slice(), 0, 0})),
              Near({-24, 56, -84, -61, 61, 128, -125, 79, -25, -217, -85, 245, 24, 0, -24, -20, -10, 88}));
  EXPECT_THAT(list_of(by_weight.flatten(1).sum(1)), Near({-162, -261, 68}));
  EXPECT_THAT(list_of(by_weight.flatten(1).square().sum(1)), Near({148070, 503147, 154986}, 1e-9));
}

// --- Normalization

/// BatchNorm of one feature in double; its counter stays an integer.
BatchNorm1d make_norm() {
  BatchNorm1d norm(1);
  norm->to(torch::kDouble);
  to_module(TensorDict({{"num_batches_tracked", torch::tensor(0)}}), *norm);
  return norm;
}

/// Three groups of two samples of one feature.
Tensor groups() { return numbers({1, 3, 0, 4, 5, 5}, {3, 2, 1}); }

const Values kNormalizedGroups{-0.999995, 0.999995, -0.99999875, 0.99999875, 0, 0};

TEST(MappedBatchNormTest, RefusesToTrainOneSetOfStatisticsOnManyGroups) {
  BatchNorm1d norm = make_norm();
  const auto forward = [&](const Tensor& group) { return norm->forward(group); };
  EXPECT_THROW(vmap(forward)(groups()), c10::Error);
  EXPECT_EQ(norm->running_mean.item<double>(), 0);
  EXPECT_EQ(norm->running_var.item<double>(), 1);
}

TEST(MappedBatchNormTest, ReadsOneSetOfStatisticsInEvaluation) {
  BatchNorm1d norm = make_norm();
  norm->eval();
  const auto forward = [&](const Tensor& group) { return norm->forward(group); };
  EXPECT_THAT(list_of(vmap(forward)(groups())), Near({0.999995, 2.999985, 0, 3.99998, 4.999975, 4.999975}, 1e-8));
}

TEST(MappedBatchNormTest, TrainsStatisticsOfEachGroup) {
  std::vector<BatchNorm1d> norms;
  for (int i = 0; i < 3; ++i) norms.push_back(make_norm());
  const auto [params, buffers] = stack_module_state(norms);
  const auto forward = [&](const TensorDict& p, const TensorDict& b, const Tensor& group) {
    return functional_call(norms[0], {p, b}, group);
  };
  EXPECT_THAT(list_of(vmap(forward)(params, buffers, groups())), Near(kNormalizedGroups, 1e-8));
  EXPECT_THAT(list_of(buffers["running_mean"]), Near({0.2, 0.2, 0.5}));
  EXPECT_THAT(list_of(buffers["running_var"]), Near({1.1, 1.7, 0.9}));
  EXPECT_THAT(list_of(buffers["num_batches_tracked"]), Near({1, 1, 1}));
  EXPECT_EQ(buffers["num_batches_tracked"].scalar_type(), torch::kLong);
  for (const BatchNorm1d& norm : norms) {
    EXPECT_EQ(norm->running_mean.item<double>(), 0);
    EXPECT_EQ(norm->running_var.item<double>(), 1);
    EXPECT_EQ(norm->num_batches_tracked.item<int64_t>(), 0);
  }
}

TEST(MappedBatchNormTest, NormalizesEachGroupByItselfIfItKeepsNoStatistics) {
  BatchNorm1d norm(BatchNormOptions(1).track_running_stats(false));
  norm->to(torch::kDouble);
  BatchNorm1d tracking = make_norm();
  const BatchNormGuard guard(tracking, BatchNormPolicy::kBatchStatistics);
  for (BatchNorm1d& layer : std::vector<BatchNorm1d>{norm, tracking}) {
    const auto forward = [&](const Tensor& group) { return layer->forward(group); };
    EXPECT_THAT(list_of(vmap(forward)(groups())), Near(kNormalizedGroups, 1e-8));
  }
}

TEST(DifferentiatedBatchNormTest, NeedsStatisticsThatItMayWriteOrAPolicy) {
  BatchNorm1d norm = make_norm();
  const Tensor x = numbers({1, 3}, {2, 1}), factors = numbers({1, 2}, {2, 1});
  const auto loss = [&](const Tensor& input) { return (norm->forward(input) * factors).sum(); };
  EXPECT_THROW(grad(loss)(x), c10::Error);
  EXPECT_EQ(norm->running_mean.item<double>(), 0);
  const BatchNormGuard guard(norm, BatchNormPolicy::kBatchStatistics);
  EXPECT_THAT(list_of(grad(loss)(x)), Near({-4.999925000854692e-06, 4.999925000854692e-06}));
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return F::layer_norm(x, F::LayerNormFuncOptions({3}).weight(weight).bias(bias));
}

TEST(LayerNormTest, HasTheGradientsOfTheFormulaForEachSample) {
  const TensorDict params({{"w", numbers({1, -1, 2}, {3})}, {"b", numbers({0.5, 0, 0}, {3})}});
  const Tensor factors = numbers({1, 10, 100}, {3});
  const auto loss = [&](const TensorDict& p, const Tensor& x) {
    return (layer_norm(x, p["w"], p["b"]) * factors).sum();
  };
  const TensorDict gradients =
      vmap(grad(loss), {.in_dims = {kNotMapped, 0}})(params, numbers({1, 2, 4, 0, 0, 3}, {2, 3}));
  EXPECT_THAT(list_of(gradients["w"]),
              Near({-1.06904153, -2.67260383, 133.63019143, -0.70710501, -7.07105013, 141.42100269}, 1e-8));
  EXPECT_THAT(list_of(gradients["b"]), Near({1, 10, 100, 1, 10, 100}));
}

TEST(LayerNormTest, HasItsPlainValueAndTheTangentsOfFiniteDifferences) {
  const Tensor weight = numbers({1, -1, 2}, {3}), bias = numbers({0.5, 0, 0}, {3});
  const auto f = [&](const Tensor& x) { return layer_norm(x, weight, bias); };
  const Tensor x = numbers({1, 2, 4}, {3}), direction = numbers({1, 0, -1}, {3});
  const auto [value, tangent] = jvp(f, x, direction);
  EXPECT_THAT(list_of(value), Near({-0.56904153, 0.26726038, 2.67260383}, 1e-8));
  EXPECT_THAT(list_of(tangent), Near({0.1145446, 0.1718091, 0.1145291}, 1e-7));
  const auto square = [&](const Tensor& at) { return f(at).square().sum(); };
  EXPECT_THAT(list_of(hvp(square, x, direction)), Near({0.645596, -0.681635, 0.036038}, 1e-6));
}

TEST(GroupNormTest, NormalizesTheGroupsOfEachSample) {
  torch::nn::GroupNorm layer(2, 4);
  const TensorDict params({{"weight", torch::ones({4}, torch::kDouble)}, {"bias", torch::zeros({4}, torch::kDouble)}});
  const Tensor x = (iota({2, 4, 2}) + 1).square();
  const auto forward = [&](const Tensor& sample) {
    return functional_call(layer, params, sample.unsqueeze(0)).squeeze(0);
  };
  EXPECT_THAT(
      list_of(vmap(forward)(x)[0]),
      Near({-1.144586, -0.61631554, 0.26413523, 1.49676631, -1.26983668, -0.51479866, 0.37751901, 1.40711632}, 1e-8));
}

// --- Losses

TEST(CrossEntropyTest, OfABatchIsTheMeanOfItsCountedSamples) {
  const Tensor w = numbers({1, 0, 0, 1, 1, 1}, {3, 2}), x = numbers({1, 2, 0, -1, 3, 1, 1, 1}, {4, 2});
  const Tensor labels = torch::tensor({0, 2, 1, -100});  // the last is ignored
  const auto of_sample = [](const Tensor& weight, const Tensor& sample, const Tensor& label) {
    return F::cross_entropy(weight.matmul(sample).unsqueeze(0), label.unsqueeze(0),
                            F::CrossEntropyFuncOptions().reduction(torch::kSum));
  };
  const Tensor each = vmap(grad(of_sample), {.in_dims = {kNotMapped, 0, 0}})(w, x, labels);
  EXPECT_THAT(list_of(each.abs().flatten(1).sum(1)), Near({5.459816561, 1.5761168848, 7.7190477843, 0}, 1e-9));

  const auto of_batch = [&](const F::CrossEntropyFuncOptions& options) {
    return grad([&](const Tensor& weight) { return F::cross_entropy(x.matmul(weight.t()), labels, options); })(w);
  };
  const Tensor mean = of_batch({});
  EXPECT_THAT(list_of(mean),
              Near({-0.0438266819, -0.712186426, -0.883304816, -0.2291218628, 0.927131498, 0.9413082889}, 1e-10));
  EXPECT_THAT(list_of(each.sum(0) / 3), Near(list_of(mean)));
  EXPECT_THAT(list_of(of_batch(F::CrossEntropyFuncOptions().weight(numbers({1, 2, 4}, {3})))),
              Near({0.092429905, -0.5150590674, -0.7920796239, -0.3268673192, 0.6996497189, 0.8419263866}, 1e-10));
}

// --- Second derivatives and inner loops

/// A net with batch statistics that are fixed, and its loss over two samples.
class HessianProductTest : public ::testing::Test {
 protected:
  HessianProductTest() { net_->eval(); }

  Tensor loss(const TensorDict& p) { return (functional_call(net_, {p, buffers_}, x_) - y_).square().mean(); }

  /// Returns `loss`, written out for double parameters.
  Tensor written_out(const TensorDict& p) {
    const Tensor h = torch::tanh(x_ * p["0.weight"].squeeze(1) + p["0.bias"]);
    const Tensor n = (h - buffers_["2.running_mean"]) / (buffers_["2.running_var"] + /*eps=*/1e-5).sqrt();
    const Tensor out = ((n * p["2.weight"] + p["2.bias"]) * p["3.weight"].squeeze(0)).sum(1, true) + p["3.bias"];
    return (out - y_).square().mean();
  }

  torch::nn::Sequential net_{torch::nn::Linear(1, 2), torch::nn::Tanh(), BatchNorm1d(2), torch::nn::Linear(2, 1)};
  const TensorDict params_{{{"0.weight", numbers({0.5, -1}, {2, 1})},
                            {"0.bias", numbers({0.1, 0.2}, {2})},
                            {"2.weight", numbers({1, 2}, {2})},
                            {"2.bias", numbers({0, 0}, {2})},
                            {"3.weight", numbers({1, -2}, {1, 2})},
                            {"3.bias", numbers({0.3}, {1})}}};
  const TensorDict buffers_{{{"2.running_mean", numbers({0.1, -0.1}, {2})},
                             {"2.running_var", numbers({4, 0.25}, {2})},
                             {"2.num_batches_tracked", torch::tensor(3)}}};
  const Tensor x_ = numbers({1, -0.5}, {2, 1}), y_ = numbers({1, 0}, {2, 1});
  TensorDict direction_ = [this] {
    TensorDict halves = map(params_, [](const Tensor& leaf) { return torch::full_like(leaf, 0.5); });
    halves.set("0.weight", numbers({1, -1}, {2, 1}));
    return halves;
  }();
};

TEST_F(HessianProductTest, OfANetWithFixedStatisticsIsThatOfFiniteDifferences) {
  const auto f = [&](const TensorDict& p) { return loss(p); };
  EXPECT_NEAR(f(params_).item<double>(), 23.0252105802, 1e-10);
  const auto gradient_at = [&](double shift) {
    const auto shifted = [&](const Tensor& p, const Tensor& d) { return p + d * shift; };
    const TensorDict leaves = requires_grad_(zip_map(params_, direction_, shifted));
    return TensorDict(leaves.keys(), torch::autograd::grad({written_out(leaves)}, leaves.values()));
  };
  const auto slope = [](const Tensor& plus, const Tensor& minus) { return (plus - minus) / 2e-5; };
  const TensorDict differences = zip_map(gradient_at(1e-5), gradient_at(-1e-5), slope);
  const auto expected = TensorDictNear(differences, 1e-7);
  EXPECT_THAT(hvp(f, params_, direction_), expected);
  EXPECT_THAT(vhp(f, params_, direction_), expected);
  EXPECT_THAT(jvp(grad(f), params_, direction_).second, expected);
  EXPECT_THAT(std::get<1>(vjp(grad(f), params_))(direction_), expected);
  const auto along = [&](const TensorDict& p) {
    Tensor sum = torch::zeros({}, torch::kDouble);
    const TensorDict gradient = grad(f)(p);
    for (const auto& [path, leaf] : gradient.leaves()) sum = sum + (leaf * direction_[path]).sum();
    return sum;
  };
  EXPECT_THAT(grad(along)(params_), expected);
  EXPECT_THAT(list_of_leaves(differences), Near({2.7930882, 2.151114, -5.0258004, -8.4860849, 4.2316348, 33.647618,
                                                 -2.9281461, 3.7134771, 3.5173631, -46.5992735, -2.2138744},
                                                1e-6));
}

TEST_F(HessianProductTest, AndTheHessianLeaveTheStatistics) {
  const TensorDict blocks = hessian([&](const TensorDict& p) { return loss(p); })(params_);
  double trace = 0;
  for (const auto& [path, leaf] : params_.leaves()) {
    trace += blocks[path + "." + path].reshape({leaf.numel(), leaf.numel()}).trace().item<double>();
  }
  EXPECT_NEAR(trace, 17.12764052, 1e-8);
  EXPECT_THAT(list_of_leaves(buffers_), Near({0.1, -0.1, 4, 0.25, 3}));
}

TEST(InnerLoopOfFirstOrderTest, InsideVmapDropsTheDerivativesOfItsSteps) {
  const TensorDict params(
      {{"a", numbers({0.5, -0.3}, {1, 2})}, {"b", numbers({0.1}, {1})}, {"c", numbers({1, -1}, {2, 1})}});
  const Tensor x = numbers({1, 2, 0, -1, 0.5, 0.5}, {3, 2, 1}), y = x.square() - 1;
  const Tensor query = numbers({0.3, 2, -1}, {3, 1, 1}), answer = query.square() - 1;
  const auto mse = [](const TensorDict& p, const Tensor& input, const Tensor& target) {
    return (input.matmul(p["a"]).tanh().matmul(p["c"]) + p["b"] - target).square().mean();
  };
  // The loss, and its gradients by a, b and c.
  for (const auto& [steps, loss, gradients] : std::vector<std::tuple<int, double, Values>>{
           {1, 5.712906462090, {-1.471940792, 3.579713651, -2.130928012, -1.633765553, 1.00768517}},
           {3, 7.406472494994, {-2.971665938, 5.628863895, -2.986191747, -1.924743111, 0.726659394}}}) {
    const int count = steps;
    const auto task = [&](TensorDict p, const Tensor& x1, const Tensor& y1, const Tensor& x2, const Tensor& y2) {
      for (int step = 0; step < count; ++step) {
        const TensorDict slope = stop_gradient(grad(mse)(p, x1, y1));
        p = zip_map(p, slope, [](const Tensor& leaf, const Tensor& g) { return leaf - g * 0.1; });
      }
      return mse(p, x2, y2);
    };
    const auto total = [&](const TensorDict& p) {
      return vmap(task, {.in_dims = {kNotMapped, 0, 0, 0, 0}})(p, x, y, query, answer).sum();
    };
    const TensorDict trained = map(params, [](const Tensor& leaf) { return leaf.clone().requires_grad_(); });
    const Tensor outer = total(trained);
    EXPECT_NEAR(outer.item<double>(), loss, 1e-11);
    const TensorDict by_autograd(trained.keys(), torch::autograd::grad({outer}, trained.values()));
    EXPECT_THAT(list_of_leaves(by_autograd), Near(gradients, 1e-8));
    EXPECT_THAT(list_of_leaves(grad(total)(params)), Near(gradients, 1e-8));
  }
}

}  // namespace graft::testing
