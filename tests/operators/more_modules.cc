// Further set-ups of modules that hold tensors: padding modes, masks, layers, directions.
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace nn = torch::nn;

/// Adds a convolution in each padding mode.
template <class Impl, class Options>
void add_convolution(Catalog& all, const std::string& name, const Shape& shape, const Options& options) {
  const auto add = [&](const std::string& mode, auto padding_mode) {
    all.module<Impl>(name + ", padded, " + mode, floats({shape}), Options(options).padding_mode(padding_mode));
  };
  add("zeros", torch::kZeros);
  add("reflect", torch::kReflect);
  add("replicate", torch::kReplicate);
  add("circular", torch::kCircular);
}

const Registration kConvolutions([](Catalog& all) {
  add_convolution<nn::Conv1dImpl>(all, "Conv1d", {1, 2, 5}, nn::Conv1dOptions(2, 2, 3).padding(1));
  add_convolution<nn::Conv2dImpl>(all, "Conv2d", {1, 2, 3, 3}, nn::Conv2dOptions(2, 2, {3, 2}).padding({1, 1}));
  add_convolution<nn::Conv3dImpl>(all, "Conv3d", {1, 1, 2, 3, 2}, nn::Conv3dOptions(1, 2, 2).padding(1));
  all.module<nn::Conv2dImpl>("Conv2d, padded to the same size", floats({{1, 2, 3, 3}}),
                             nn::Conv2dOptions(2, 2, 2).padding(torch::kSame));
  all.module<nn::Conv2dImpl>("Conv2d, of one image", floats({{2, 3, 3}}), nn::Conv2dOptions(2, 2, 2).bias(false));
  const auto transposed = nn::ConvTranspose2dOptions(2, 4, 2).groups(2).stride(2).padding(1).output_padding(1);
  all.module<nn::ConvTranspose2dImpl>("ConvTranspose2d, in groups", floats({{1, 2, 3, 2}}), transposed);
  all.module<nn::LinearImpl>("Linear, of one vector", floats({{3}}), nn::LinearOptions(3, 2));
  all.module<nn::LinearImpl>("Linear, of sequences", floats({{2, 2, 3}}), nn::LinearOptions(3, 2));
});

const Registration kBags([](Catalog& all) {
  all.add(
      {.name = "EmbeddingBag, with offsets",
       .inputs = integers(4, {5}),
       .make = [] { return std::make_shared<nn::EmbeddingBagImpl>(nn::EmbeddingBagOptions(4, 2).mode(torch::kMean)); },
       .forward =
           [](nn::Module& module, const Tensors& in) {
             const Tensor offsets = torch::tensor({0, 2, 2}, torch::kLong);
             return dynamic_cast<nn::EmbeddingBagImpl&>(module).forward(in[0], offsets);
           }});
});

const Registration kRecurrent([](Catalog& all) {
  const auto x = floats({{3, 2, 2}});
  all.module<nn::RNNImpl>("RNN, of relu", x, nn::RNNOptions(2, 3).nonlinearity(torch::kReLU));
  all.module<nn::RNNImpl>("RNN, bidirectional, two layers", x, nn::RNNOptions(2, 2).num_layers(2).bidirectional(true));
  all.module<nn::RNNImpl>("RNN, batch first", x, nn::RNNOptions(2, 3).batch_first(true));
  all.module<nn::RNNImpl>("RNN, no bias", x, nn::RNNOptions(2, 3).bias(false));
  all.module<nn::LSTMImpl>("LSTM, batch first", x, nn::LSTMOptions(2, 2).batch_first(true));
  all.module<nn::LSTMImpl>("LSTM, bidirectional, projected", x, nn::LSTMOptions(2, 2).bidirectional(true).proj_size(1));
  all.module<nn::LSTMImpl>("LSTM, two layers, no bias", x, nn::LSTMOptions(2, 2).num_layers(2).bias(false));
  all.module<nn::LSTMImpl>("LSTM, two layers, with dropout", x, nn::LSTMOptions(2, 2).num_layers(2).dropout(0.5))
      .is_random = true;
  all.module<nn::GRUImpl>("GRU, bidirectional, two layers", x, nn::GRUOptions(2, 2).num_layers(2).bidirectional(true));
  all.module<nn::GRUImpl>("GRU, batch first, no bias", x, nn::GRUOptions(2, 3).batch_first(true).bias(false));
  const auto of_cell = floats({{2, 2}});
  all.module<nn::RNNCellImpl>("RNNCell, of relu", of_cell, nn::RNNCellOptions(2, 3).nonlinearity(torch::kReLU));
  all.module<nn::RNNCellImpl>("RNNCell, no bias", of_cell, nn::RNNCellOptions(2, 3).bias(false));
  all.module<nn::LSTMCellImpl>("LSTMCell, no bias", of_cell, nn::LSTMCellOptions(2, 3).bias(false));
  all.module<nn::GRUCellImpl>("GRUCell, no bias", of_cell, nn::GRUCellOptions(2, 3).bias(false));
});

const Registration kAttention([](Catalog& all) {
  const auto add = [&](const std::string& name, const nn::MultiheadAttentionOptions& options, bool masks) -> Operator& {
    return all.add({.name = "MultiheadAttention, " + name,
                    .inputs = floats({{2, 1, 4}}),
                    .make = [=] { return std::make_shared<nn::MultiheadAttentionImpl>(options); },
                    .forward =
                        [=](nn::Module& module, const Tensors& in) {
                          const Tensor none, mask = torch::ones({2, 2}, torch::kBool).triu(1);
                          return as_tensor(dynamic_cast<nn::MultiheadAttentionImpl&>(module).forward(
                              in[0], in[0], in[0], masks ? torch::tensor({{false, true}}) : none, /*need_weights=*/true,
                              masks ? mask : none));
                        }});
  };
  add("with masks", nn::MultiheadAttentionOptions(4, 2), true);
  add("no bias", nn::MultiheadAttentionOptions(4, 2).bias(false), false);
  add("with dropout", nn::MultiheadAttentionOptions(4, 2).dropout(0.5), false).is_random = true;
  const auto layer = nn::TransformerEncoderLayerOptions(4, 2).dim_feedforward(3);
  all.module<nn::TransformerEncoderLayerImpl>(
      "TransformerEncoderLayer, of gelu", floats({{2, 1, 4}}),
      nn::TransformerEncoderLayerOptions(layer).activation(torch::kGELU).dropout(0));
  in_eval(all.module<nn::TransformerEncoderLayerImpl>("TransformerEncoderLayer, not in training", floats({{2, 1, 4}}),
                                                      layer));
  all.module<nn::TransformerEncoderLayerImpl>("TransformerEncoderLayer, with dropout", floats({{2, 1, 4}}),
                                              nn::TransformerEncoderLayerOptions(layer).dropout(0.5))
      .is_random = true;
});

}  // namespace
}  // namespace graft::testing
