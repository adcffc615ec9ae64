// Functions with weights of torch::nn::functional: linear, convolutions, embeddings, norms and attention.
#include <ATen/Functions.h>
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/functional/conv.h>
#include <torch/nn/functional/embedding.h>
#include <torch/nn/functional/instancenorm.h>
#include <torch/nn/functional/linear.h>
#include <torch/nn/functional/normalization.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace F = torch::nn::functional;

const Registration kLinear([](Catalog& all) {
  all.function("linear", floats({{2, 3}, {4, 3}, {4}}), [](auto& in) { return F::linear(in[0], in[1], in[2]); });
  all.function("linear, no bias", floats({{2, 3}, {4, 3}}), [](auto& in) { return F::linear(in[0], in[1]); });
  all.function("linear, of one vector", floats({{3}, {4, 3}, {4}}),
               [](auto& in) { return F::linear(in[0], in[1], in[2]); });
  all.function("linear, of sequences", floats({{2, 2, 3}, {4, 3}, {4}}),
               [](auto& in) { return F::linear(in[0], in[1], in[2]); });
  all.function("bilinear", floats({{2, 3}, {2, 2}, {4, 3, 2}, {4}}),
               [](auto& in) { return F::bilinear(in[0], in[1], in[2], in[3]); });
  all.function("bilinear, no bias", floats({{2, 3}, {2, 2}, {4, 3, 2}}),
               [](auto& in) { return F::bilinear(in[0], in[1], in[2]); });
});

const Registration kConvolutions([](Catalog& all) {
  all.function("conv1d", floats({{2, 2, 5}, {3, 2, 2}, {3}}),
               [](auto& in) { return F::conv1d(in[0], in[1], F::Conv1dFuncOptions().bias(in[2])); });
  all.function("conv2d", floats({{1, 2, 4, 4}, {3, 2, 2, 2}, {3}}),
               [](auto& in) { return F::conv2d(in[0], in[1], F::Conv2dFuncOptions().bias(in[2])); });
  all.function("conv2d, in groups", floats({{1, 2, 5, 5}, {4, 1, 2, 2}, {4}}), [](auto& in) {
    return F::conv2d(in[0], in[1], F::Conv2dFuncOptions().bias(in[2]).groups(2).stride(2).dilation(2).padding(1));
  });
  all.function("conv2d, of one image", floats({{2, 4, 4}, {3, 2, 2, 2}, {3}}),
               [](auto& in) { return F::conv2d(in[0], in[1], F::Conv2dFuncOptions().bias(in[2])); });
  all.function("conv2d, padded to the same size", floats({{1, 2, 4, 4}, {3, 2, 2, 2}, {3}}), [](auto& in) {
    return F::conv2d(in[0], in[1], F::Conv2dFuncOptions().bias(in[2]).padding(torch::kSame));
  });
  all.function("conv3d", floats({{1, 2, 3, 3, 2}, {2, 2, 2, 2, 2}, {2}}),
               [](auto& in) { return F::conv3d(in[0], in[1], F::Conv3dFuncOptions().bias(in[2])); });
  all.function("conv_transpose1d", floats({{2, 2, 4}, {2, 3, 2}, {3}}),
               [](auto& in) { return F::conv_transpose1d(in[0], in[1], F::ConvTranspose1dFuncOptions().bias(in[2])); });
  all.function("conv_transpose2d", floats({{1, 2, 3, 3}, {2, 3, 2, 2}, {3}}),
               [](auto& in) { return F::conv_transpose2d(in[0], in[1], F::ConvTranspose2dFuncOptions().bias(in[2])); });
  all.function("conv_transpose2d, in groups", floats({{1, 2, 3, 3}, {2, 2, 2, 2}, {4}}), [](auto& in) {
    return F::conv_transpose2d(
        in[0], in[1], F::ConvTranspose2dFuncOptions().bias(in[2]).groups(2).stride(2).output_padding(1).padding(1));
  });
  all.function("conv_transpose3d", floats({{1, 2, 2, 2, 2}, {2, 2, 2, 2, 2}, {2}}),
               [](auto& in) { return F::conv_transpose3d(in[0], in[1], F::ConvTranspose3dFuncOptions().bias(in[2])); });
});

const Registration kEmbeddings([](Catalog& all) {
  const auto add = [&](const std::string& name, const F::EmbeddingFuncOptions& options) -> Operator& {
    return all.function(name, joined({floats({{4, 3}}), integers(4, {2, 3})}),
                        [=](auto& in) { return F::embedding(in[1], in[0], options); });
  };
  add("embedding", {});
  add("embedding, with padding", F::EmbeddingFuncOptions().padding_idx(1)).has_other_backward = true;
  add("embedding, scaled by frequency", F::EmbeddingFuncOptions().scale_grad_by_freq(true)).has_other_backward = true;
  const auto add_bag = [&](const std::string& name, const F::EmbeddingBagFuncOptions& options) {
    all.function("embedding_bag, " + name, joined({floats({{4, 3}}), integers(4, {2, 3})}),
                 [=](auto& in) { return F::embedding_bag(in[1], in[0], options); });
  };
  add_bag("mean", F::EmbeddingBagFuncOptions().mode(torch::kMean));
  add_bag("sum", F::EmbeddingBagFuncOptions().mode(torch::kSum));
  add_bag("max", F::EmbeddingBagFuncOptions().mode(torch::kMax));
  add_bag("with padding", F::EmbeddingBagFuncOptions().mode(torch::kSum).padding_idx(1));
  all.function("embedding_bag, with offsets", joined({floats({{4, 3}}), integers(4, {5})}), [](auto& in) {
    return F::embedding_bag(
        in[1], in[0], F::EmbeddingBagFuncOptions().mode(torch::kSum).offsets(torch::tensor({0, 2, 2}, torch::kLong)));
  });
  all.function("embedding_bag, weighted", joined({floats({{4, 3}, {2, 3}}), integers(4, {2, 3})}), [](auto& in) {
    return F::embedding_bag(in[2], in[0], F::EmbeddingBagFuncOptions().mode(torch::kSum).per_sample_weights(in[1]));
  });
  all.function("one_hot", integers(4, {5}), [](auto& in) { return F::one_hot(in[0], 4); });
  all.function("one_hot, as many classes as there are", integers(4, {5}), [](auto& in) { return F::one_hot(in[0]); })
      .refusal = {"How many classes there are would depend on the values. Pass `num_classes`.", "num_classes"};
});

const Registration kNorms([](Catalog& all) {
  const auto batch = [](bool training) {
    return [training](auto& in) {
      return F::batch_norm(in[0], in[3].exp().detach(), in[4].exp().detach(),
                           F::BatchNormFuncOptions().weight(in[1]).bias(in[2]).training(training));
    };
  };
  const auto inputs = floats({{4, 3, 2}, {3}, {3}, {3}, {3}});
  all.function("batch_norm", inputs, batch(false)).differentiable = 3;
  Operator& in_training = all.function("batch_norm, in training", inputs, batch(true));
  in_training.differentiable = 3;
  in_training.refusal = kRunningStatistics;
  all.function("batch_norm, in training, no statistics", floats({{4, 3, 2}, {3}, {3}}), [](auto& in) {
    return F::batch_norm(in[0], {}, {}, F::BatchNormFuncOptions().weight(in[1]).bias(in[2]).training(true));
  });
  all.function("instance_norm", floats({{2, 3, 4}, {3}, {3}}), [](auto& in) {
    return F::instance_norm(in[0], F::InstanceNormFuncOptions().weight(in[1]).bias(in[2]));
  });
  all.function("layer_norm", floats({{2, 2, 3}, {2, 3}, {2, 3}}), [](auto& in) {
    return F::layer_norm(in[0], F::LayerNormFuncOptions({2, 3}).weight(in[1]).bias(in[2]));
  });
  all.function("layer_norm, no weight", floats({{2, 4}}),
               [](auto& in) { return F::layer_norm(in[0], F::LayerNormFuncOptions({4})); });
  all.function("group_norm", floats({{2, 4, 3}, {4}, {4}}),
               [](auto& in) { return F::group_norm(in[0], F::GroupNormFuncOptions(2).weight(in[1]).bias(in[2])); });
  all.function("local_response_norm", floats({{2, 4, 3}}),
               [](auto& in) { return F::local_response_norm(in[0], F::LocalResponseNormFuncOptions(3)); });
  all.function("local_response_norm, of images", floats({{1, 4, 2, 2}}),
               [](auto& in) { return F::local_response_norm(in[0], F::LocalResponseNormFuncOptions(2)); });
  all.function("normalize", floats({{2, 4}}), [](auto& in) { return F::normalize(in[0]); });
  all.function("normalize, of order 3", floats({{2, 4}}),
               [](auto& in) { return F::normalize(in[0], F::NormalizeFuncOptions().p(3).dim(0)); });
});

const Registration kAttention([](Catalog& all) {
  const auto attend = [](auto& in, const Tensor& mask, const Tensor& padding, bool adds_zero) {
    F::MultiheadAttentionForwardFuncOptions options(4, 2, in[3], in[4], {}, {}, adds_zero, 0., in[5], in[6]);
    return F::multi_head_attention_forward(in[0], in[1], in[2], options.attn_mask(mask).key_padding_mask(padding));
  };
  const std::vector<Shape> weights = {{12, 4}, {12}, {4, 4}, {4}};
  const auto with_weights = [&](std::vector<Shape> shapes) {
    shapes.insert(shapes.end(), weights.begin(), weights.end());
    return floats(shapes);
  };
  all.function("multi_head_attention_forward", with_weights({{3, 2, 4}, {2, 2, 4}, {2, 2, 4}}),
               [=](auto& in) { return attend(in, {}, {}, false); });
  all.function("multi_head_attention_forward, with masks", with_weights({{2, 1, 4}, {2, 1, 4}, {2, 1, 4}}),
               [=](auto& in) {
                 return attend(in, torch::ones({2, 2}, torch::kBool).triu(1), torch::tensor({{false, true}}), true);
               });
  const auto heads = floats({{2, 3, 2}, {2, 4, 2}, {2, 4, 2}});
  all.function("scaled_dot_product_attention", heads,
               [](auto& in) { return at::scaled_dot_product_attention(in[0], in[1], in[2]); });
  all.function("scaled_dot_product_attention, causal", floats({{2, 3, 2}, {2, 3, 2}, {2, 3, 2}}), [](auto& in) {
    return at::scaled_dot_product_attention(in[0], in[1], in[2], {}, 0., /*is_causal=*/true);
  });
  all.function("scaled_dot_product_attention, with mask", floats({{2, 3, 2}, {2, 4, 2}, {2, 4, 2}, {3, 4}}),
               [](auto& in) { return at::scaled_dot_product_attention(in[0], in[1], in[2], in[3]); });
});

}  // namespace
}  // namespace graft::testing
