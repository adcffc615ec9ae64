#include "tests/testing/torch_modules.h"

#include <torch/nn.h>

#include <tuple>
#include <type_traits>
#include <utility>

namespace graft::testing {
namespace {

namespace nn = torch::nn;
using Inputs = TorchModule::Inputs;
using Shape = std::vector<int64_t>;
using Catalog = std::vector<TorchModule>;

/// How most modules are called.
constexpr auto kForward = [](auto& module, const Inputs& x) { return module.forward(x[0]); };
constexpr auto kForwardTwo = [](auto& module, const Inputs& x) { return module.forward(x[0], x[1]); };
constexpr auto kFirstResult = [](auto& module, const Inputs& x) { return std::get<0>(module.forward(x[0])); };
/// With a hidden state, which an LSTM has in two parts.
constexpr auto kFirstResultOfTwo = [](auto& module, const Inputs& x) {
  return std::get<0>(module.forward(x[0], x[1]));
};
constexpr auto kFirstResultOfThree = [](auto& module, const Inputs& x) {
  return std::get<0>(module.forward(x[0], std::make_tuple(x[1], x[2])));
};

/// Draws one input of each shape.
auto floats(std::vector<Shape> shapes) {
  return [shapes = std::move(shapes)] {
    Inputs inputs;
    for (const Shape& shape : shapes) inputs.push_back(torch::randn(shape, torch::kDouble));
    return inputs;
  };
}

auto indices(int64_t bound, Shape shape) {
  return [bound, shape = std::move(shape)] { return Inputs{torch::randint(bound, shape, torch::kLong)}; };
}

/// Scores of three classes, and a class.
Inputs scores_and_class() { return {torch::randn({1, 3}, torch::kDouble), torch::randint(3, {1}, torch::kLong)}; }

/// Three numbers, and for each whether it should be one.
Inputs scores_and_marks() {
  return {torch::randn({1, 3}, torch::kDouble), torch::randint(2, {1, 3}).to(torch::kDouble)};
}

Inputs shares_and_marks() {
  return {torch::rand({1, 3}, torch::kDouble), torch::randint(2, {1, 3}).to(torch::kDouble)};
}

/// The entry of a module that is made from its options. If these hold tensors `options` is a function that returns
/// them, so that no two modules share one.
template <typename Impl, typename Options, typename Draw, typename Call>
TorchModule entry(std::string name, Options options, Draw inputs, Call call) {
  return {.name = std::move(name),
          .make =
              [options] {
                if constexpr (std::is_invocable_v<Options>) {
                  return std::make_shared<Impl>(options());
                } else {
                  return std::make_shared<Impl>(options);
                }
              },
          .inputs = std::move(inputs),
          .call = [call](nn::Module& module, const Inputs& x) -> torch::Tensor {
            return call(dynamic_cast<Impl&>(module), x);
          }};
}

TorchModule in_eval(TorchModule entry) {
  entry.make = [make = std::move(entry.make)] {
    auto module = make();
    module->eval();
    return module;
  };
  return entry;
}

void add_linear(Catalog& all) {
  all.push_back(entry<nn::LinearImpl>("Linear", nn::LinearOptions(2, 3), floats({{1, 2}}), kForward));
  all.push_back(
      entry<nn::LinearImpl>("LinearWithoutBias", nn::LinearOptions(2, 3).bias(false), floats({{1, 2}}), kForward));
  all.push_back(
      entry<nn::BilinearImpl>("Bilinear", nn::BilinearOptions(2, 3, 4), floats({{1, 2}, {1, 3}}), kForwardTwo));
  all.push_back(entry<nn::PReLUImpl>("PReLU", nn::PReLUOptions(), floats({{1, 8}}), kForward));
  all.push_back(
      entry<nn::PReLUImpl>("PReLUOfChannels", nn::PReLUOptions().num_parameters(3), floats({{1, 3, 4}}), kForward));
}

void add_convolutions(Catalog& all) {
  all.push_back(entry<nn::Conv1dImpl>("Conv1d", nn::Conv1dOptions(2, 3, 2), floats({{1, 2, 5}}), kForward));
  all.push_back(entry<nn::Conv2dImpl>("Conv2d", nn::Conv2dOptions(2, 3, 2), floats({{1, 2, 5, 5}}), kForward));
  all.push_back(entry<nn::Conv2dImpl>("Conv2dInGroups",
                                      nn::Conv2dOptions(2, 4, 2).groups(2).stride(2).dilation(2).padding(1),
                                      floats({{1, 2, 6, 6}}), kForward));
  all.push_back(entry<nn::Conv2dImpl>("Conv2dReflecting",
                                      nn::Conv2dOptions(2, 3, 3).padding(1).padding_mode(torch::kReflect),
                                      floats({{1, 2, 5, 5}}), kForward));
  all.push_back(entry<nn::Conv3dImpl>("Conv3d", nn::Conv3dOptions(2, 3, 2), floats({{1, 2, 3, 3, 3}}), kForward));
  all.push_back(entry<nn::ConvTranspose1dImpl>("ConvTranspose1d", nn::ConvTranspose1dOptions(2, 3, 2),
                                               floats({{1, 2, 4}}), kForward));
  all.push_back(entry<nn::ConvTranspose2dImpl>("ConvTranspose2d", nn::ConvTranspose2dOptions(2, 3, 2),
                                               floats({{1, 2, 4, 4}}), kForward));
  all.push_back(entry<nn::ConvTranspose3dImpl>("ConvTranspose3d", nn::ConvTranspose3dOptions(2, 3, 2),
                                               floats({{1, 2, 3, 3, 3}}), kForward));
}

template <typename Impl>
void add_batch_norm(Catalog& all, const std::string& name, const Shape& shape) {
  const nn::BatchNormOptions options(3);
  all.push_back(in_eval(entry<Impl>(name, options, floats({shape}), kForward)));
  all.push_back(entry<Impl>(name + "InTraining", options, floats({shape}), kForward));
  all.push_back(entry<Impl>(name + "InTrainingWithoutStatistics", nn::BatchNormOptions(3).track_running_stats(false),
                            floats({shape}), kForward));
}

template <typename Impl>
void add_instance_norm(Catalog& all, const std::string& name, const Shape& shape) {
  const auto tracking = nn::InstanceNormOptions(3).affine(true).track_running_stats(true);
  all.push_back(entry<Impl>(name, nn::InstanceNormOptions(3).affine(true), floats({shape}), kForward));
  all.push_back(in_eval(entry<Impl>(name + "WithStatistics", tracking, floats({shape}), kForward)));
  all.push_back(entry<Impl>(name + "WithStatisticsInTraining", tracking, floats({shape}), kForward));
}

void add_norms(Catalog& all) {
  add_batch_norm<nn::BatchNorm1dImpl>(all, "BatchNorm1d", {1, 3, 4});
  add_batch_norm<nn::BatchNorm2dImpl>(all, "BatchNorm2d", {1, 3, 4, 2});
  add_batch_norm<nn::BatchNorm3dImpl>(all, "BatchNorm3d", {1, 3, 2, 2, 2});
  add_instance_norm<nn::InstanceNorm1dImpl>(all, "InstanceNorm1d", {1, 3, 4});
  add_instance_norm<nn::InstanceNorm2dImpl>(all, "InstanceNorm2d", {1, 3, 4, 2});
  add_instance_norm<nn::InstanceNorm3dImpl>(all, "InstanceNorm3d", {1, 3, 2, 2, 2});
  all.push_back(entry<nn::LayerNormImpl>("LayerNorm", nn::LayerNormOptions({3, 2}), floats({{1, 4, 3, 2}}), kForward));
  all.push_back(entry<nn::GroupNormImpl>("GroupNorm", nn::GroupNormOptions(2, 4), floats({{1, 4, 5}}), kForward));
}

void add_embeddings(Catalog& all) {
  const auto add = [&](const std::string& name, const nn::EmbeddingOptions& options) {
    all.push_back(entry<nn::EmbeddingImpl>(name, options, indices(5, {1, 4}), kForward));
  };
  const auto add_bag = [&](const std::string& name, const nn::EmbeddingBagOptions& options) {
    all.push_back(entry<nn::EmbeddingBagImpl>(name, options, indices(5, {1, 4}), kForward));
  };
  add("Embedding", nn::EmbeddingOptions(5, 3));
  add("EmbeddingWithPadding", nn::EmbeddingOptions(5, 3).padding_idx(1));
  add("EmbeddingScaledByFrequency", nn::EmbeddingOptions(5, 3).scale_grad_by_freq(true));
  add("EmbeddingWithMaxNorm", nn::EmbeddingOptions(5, 3).max_norm(0.5));
  add("EmbeddingSparse", nn::EmbeddingOptions(5, 3).sparse(true));
  add_bag("EmbeddingBagOfMeans", nn::EmbeddingBagOptions(5, 3).mode(torch::kMean));
  add_bag("EmbeddingBagOfSums", nn::EmbeddingBagOptions(5, 3).mode(torch::kSum));
  add_bag("EmbeddingBagOfMaxima", nn::EmbeddingBagOptions(5, 3).mode(torch::kMax));
  add_bag("EmbeddingBagWithPadding", nn::EmbeddingBagOptions(5, 3).mode(torch::kSum).padding_idx(1));
  add_bag("EmbeddingBagWithMaxNorm", nn::EmbeddingBagOptions(5, 3).mode(torch::kSum).max_norm(0.5));
  add_bag("EmbeddingBagSparse", nn::EmbeddingBagOptions(5, 3).mode(torch::kSum).sparse(true));
  all.push_back(entry<nn::EmbeddingBagImpl>(
      "EmbeddingBagOfWeightedSums", nn::EmbeddingBagOptions(5, 3).mode(torch::kSum),
      [] {
        return Inputs{torch::randint(5, {1, 4}, torch::kLong), torch::rand({1, 4}, torch::kDouble)};
      },
      [](nn::EmbeddingBagImpl& module, const Inputs& x) { return module.forward(x[0], /*offsets=*/{}, x[1]); }));
}

void add_attention(Catalog& all) {
  using Options = nn::MultiheadAttentionOptions;
  const auto self = [](nn::MultiheadAttentionImpl& module, const Inputs& x) {
    return std::get<0>(module.forward(x[0], x[0], x[0]));
  };
  const auto cross = [](nn::MultiheadAttentionImpl& module, const Inputs& x) {
    return std::get<0>(module.forward(x[0], x[1], x[2]));
  };
  const auto add = [&](const std::string& name, const Options& options, std::vector<Shape> shapes, auto call) {
    all.push_back(entry<nn::MultiheadAttentionImpl>(name, options, floats(std::move(shapes)), call));
  };
  add("MultiheadAttention", Options(4, 2), {{3, 1, 4}}, self);
  add("MultiheadAttentionWithBiasKv", Options(4, 2).add_bias_kv(true).add_zero_attn(true), {{3, 1, 4}}, self);
  add("MultiheadAttentionOfThree", Options(4, 2), {{3, 1, 4}, {2, 1, 4}, {2, 1, 4}}, cross);
  add("MultiheadAttentionWithOtherSizes", Options(4, 2).kdim(3).vdim(3), {{3, 1, 4}, {2, 1, 3}, {2, 1, 3}}, cross);
  add("MultiheadAttentionWithOtherSizesAndBiasKv", Options(4, 2).kdim(3).vdim(3).add_bias_kv(true),
      {{3, 1, 4}, {2, 1, 3}, {2, 1, 3}}, cross);
}

void add_transformers(Catalog& all) {
  const auto encoder = nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(5).dropout(0);
  const auto decoder = nn::TransformerDecoderLayerOptions(4, 2).dim_feedforward(5).dropout(0);
  const auto one = floats({{3, 1, 4}});
  const auto two = floats({{3, 1, 4}, {2, 1, 4}});
  all.push_back(entry<nn::TransformerEncoderLayerImpl>("TransformerEncoderLayer", encoder, one, kForward));
  all.push_back(entry<nn::TransformerDecoderLayerImpl>("TransformerDecoderLayer", decoder, two, kForwardTwo));
  all.push_back(entry<nn::TransformerEncoderImpl>("TransformerEncoder", nn::TransformerEncoderOptions(encoder, 2), one,
                                                  kForward));
  all.push_back(entry<nn::TransformerDecoderImpl>("TransformerDecoder", nn::TransformerDecoderOptions(decoder, 2), two,
                                                  kForwardTwo));
  all.push_back(entry<nn::TransformerImpl>(
      "Transformer", nn::TransformerOptions(4, 2, 1, 1).dim_feedforward(5).dropout(0), two, kForwardTwo));
}

void add_recurrent(Catalog& all) {
  const auto x = floats({{4, 1, 2}});
  const auto with_state = floats({{4, 1, 2}, {1, 1, 3}});
  const auto with_two_states = floats({{4, 1, 2}, {1, 1, 3}, {1, 1, 3}});
  const auto stacked = nn::LSTMOptions(2, 3).num_layers(2).bidirectional(true);
  const auto projected = nn::LSTMOptions(2, 3).proj_size(2);
  all.push_back(entry<nn::RNNImpl>("RNN", nn::RNNOptions(2, 3), x, kFirstResult));
  all.push_back(entry<nn::RNNImpl>("RNNWithState", nn::RNNOptions(2, 3), with_state, kFirstResultOfTwo));
  all.push_back(entry<nn::RNNImpl>("RNNOfReluWithState", nn::RNNOptions(2, 3).nonlinearity(torch::kReLU), with_state,
                                   kFirstResultOfTwo));
  all.push_back(entry<nn::LSTMImpl>("LSTM", nn::LSTMOptions(2, 3), x, kFirstResult));
  all.push_back(entry<nn::LSTMImpl>("LSTMWithState", nn::LSTMOptions(2, 3), with_two_states, kFirstResultOfThree));
  all.push_back(entry<nn::LSTMImpl>("LSTMStacked", stacked, x, kFirstResult));
  all.push_back(entry<nn::LSTMImpl>("LSTMStackedWithState", stacked, floats({{4, 1, 2}, {4, 1, 3}, {4, 1, 3}}),
                                    kFirstResultOfThree));
  all.push_back(entry<nn::LSTMImpl>("LSTMProjected", projected, x, kFirstResult));
  all.push_back(entry<nn::LSTMImpl>("LSTMProjectedWithState", projected, floats({{4, 1, 2}, {1, 1, 2}, {1, 1, 3}}),
                                    kFirstResultOfThree));
  all.push_back(entry<nn::GRUImpl>("GRU", nn::GRUOptions(2, 3), x, kFirstResult));
  all.push_back(entry<nn::GRUImpl>("GRUWithState", nn::GRUOptions(2, 3), with_state, kFirstResultOfTwo));
  all.push_back(entry<nn::GRUImpl>("GRUStackedWithState", nn::GRUOptions(2, 3).num_layers(2).bidirectional(true),
                                   floats({{4, 1, 2}, {4, 1, 3}}), kFirstResultOfTwo));
}

void add_cells(Catalog& all) {
  const auto x = floats({{1, 2}});
  const auto with_state = floats({{1, 2}, {1, 3}});
  all.push_back(entry<nn::RNNCellImpl>("RNNCell", nn::RNNCellOptions(2, 3), x, kForward));
  all.push_back(entry<nn::RNNCellImpl>("RNNCellWithState", nn::RNNCellOptions(2, 3), with_state, kForwardTwo));
  all.push_back(entry<nn::LSTMCellImpl>("LSTMCell", nn::LSTMCellOptions(2, 3), x, kFirstResult));
  all.push_back(entry<nn::LSTMCellImpl>("LSTMCellWithState", nn::LSTMCellOptions(2, 3),
                                        floats({{1, 2}, {1, 3}, {1, 3}}), kFirstResultOfThree));
  all.push_back(entry<nn::GRUCellImpl>("GRUCell", nn::GRUCellOptions(2, 3), x, kForward));
  all.push_back(entry<nn::GRUCellImpl>("GRUCellWithState", nn::GRUCellOptions(2, 3), with_state, kForwardTwo));
}

void add_losses(Catalog& all) {
  static constexpr auto kWeight = [] { return torch::tensor({0.5, 1.0, 2.0}); };
  all.push_back(entry<nn::BCELossImpl>(
      "BCELoss", [] { return nn::BCELossOptions().weight(kWeight()); }, shares_and_marks, kForwardTwo));
  all.push_back(entry<nn::BCEWithLogitsLossImpl>(
      "BCEWithLogitsLoss", [] { return nn::BCEWithLogitsLossOptions().weight(kWeight()).pos_weight(kWeight() + 1); },
      scores_and_marks, kForwardTwo));
  all.push_back(entry<nn::NLLLossImpl>(
      "NLLLoss", [] { return nn::NLLLossOptions().weight(kWeight()); }, scores_and_class, kForwardTwo));
  all.push_back(entry<nn::CrossEntropyLossImpl>(
      "CrossEntropyLoss", [] { return nn::CrossEntropyLossOptions().weight(kWeight()); }, scores_and_class,
      kForwardTwo));
  all.push_back(entry<nn::MultiMarginLossImpl>(
      "MultiMarginLoss", [] { return nn::MultiMarginLossOptions().weight(kWeight()); }, scores_and_class, kForwardTwo));
  all.push_back(entry<nn::MultiLabelSoftMarginLossImpl>(
      "MultiLabelSoftMarginLoss", [] { return nn::MultiLabelSoftMarginLossOptions().weight(kWeight()); },
      scores_and_marks, kForwardTwo));
  const auto adaptive = nn::AdaptiveLogSoftmaxWithLossOptions(4, 6, {2, 4}).div_value(2);
  all.push_back(entry<nn::AdaptiveLogSoftmaxWithLossImpl>(
      "AdaptiveLogSoftmaxWithLoss", adaptive,
      [] {
        return Inputs{torch::randn({1, 4}, torch::kDouble), torch::randint(6, {1}, torch::kLong)};
      },
      [](nn::AdaptiveLogSoftmaxWithLossImpl& module, const Inputs& x) { return module.forward(x[0], x[1]).output; }));
  all.push_back(entry<nn::AdaptiveLogSoftmaxWithLossImpl>(
      "AdaptiveLogSoftmaxWithLossAsLogProb", adaptive, floats({{1, 4}}),
      [](nn::AdaptiveLogSoftmaxWithLossImpl& module, const Inputs& x) { return module.log_prob(x[0]); }));
}

/// These two have no forward: their user reads their parameters.
void add_containers(Catalog& all) {
  static constexpr auto kParameter = [] { return torch::ones({3}, torch::requires_grad()); };
  all.push_back(
      entry<nn::ParameterListImpl>("ParameterList", kParameter, floats({{1, 3}}),
                                   [](nn::ParameterListImpl& module, const Inputs& x) { return x[0] * module[0]; }));
  all.push_back(entry<nn::ParameterDictImpl>(
      "ParameterDict",
      [] {
        return torch::OrderedDict<std::string, torch::Tensor>{{"scale", kParameter()}};
      },
      floats({{1, 3}}), [](nn::ParameterDictImpl& module, const Inputs& x) { return x[0] * module["scale"]; }));
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const TorchModule& entry) { return out << entry.name; }

const std::vector<TorchModule>& torch_modules() {
  static const Catalog catalog = [] {
    Catalog all;
    add_linear(all);
    add_convolutions(all);
    add_norms(all);
    add_embeddings(all);
    add_attention(all);
    add_transformers(all);
    add_recurrent(all);
    add_cells(all);
    add_losses(all);
    add_containers(all);
    return all;
  }();
  return catalog;
}

}  // namespace graft::testing
