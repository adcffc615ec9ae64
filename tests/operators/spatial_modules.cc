// Pooling, padding, resampling and reshaping modules, and norms that hold nothing.
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/fold.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/padding.h>
#include <torch/nn/modules/pixelshuffle.h>
#include <torch/nn/modules/pooling.h>
#include <torch/nn/modules/upsampling.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace nn = torch::nn;

const auto line = floats({{1, 2, 6}});
const auto image = floats({{1, 2, 4, 5}});
const auto volume = floats({{1, 1, 4, 4, 4}});

const Registration kPooling([](Catalog& all) {
  all.module<nn::AvgPool1dImpl>("AvgPool1d", line, 2);
  all.module<nn::AvgPool2dImpl>("AvgPool2d", image, 2);
  all.module<nn::AvgPool3dImpl>("AvgPool3d", volume, 2);
  all.module<nn::MaxPool1dImpl>("MaxPool1d", line, 2);
  all.module<nn::MaxPool2dImpl>("MaxPool2d", image, 2);
  all.module<nn::MaxPool2dImpl>("MaxPool2d, dilated", image,
                                nn::MaxPool2dOptions(2).dilation(2).padding(1).ceil_mode(true));
  all.module<nn::MaxPool3dImpl>("MaxPool3d", volume, 2);
  all.module<nn::LPPool1dImpl>("LPPool1d", line, nn::LPPool1dOptions(2, 2));
  all.module<nn::LPPool2dImpl>("LPPool2d", image, nn::LPPool2dOptions(2, {2, 2}));
  all.module<nn::LPPool3dImpl>("LPPool3d", volume, nn::LPPool3dOptions(2, {2, 2, 2}));
  all.module<nn::AdaptiveAvgPool1dImpl>("AdaptiveAvgPool1d", line, 4);
  all.module<nn::AdaptiveAvgPool2dImpl>("AdaptiveAvgPool2d", image, nn::AdaptiveAvgPool2dOptions({3, 2}));
  all.module<nn::AdaptiveAvgPool3dImpl>("AdaptiveAvgPool3d", volume, nn::AdaptiveAvgPool3dOptions({2, 3, 2}));
  all.module<nn::AdaptiveMaxPool1dImpl>("AdaptiveMaxPool1d", line, 4);
  all.module<nn::AdaptiveMaxPool2dImpl>("AdaptiveMaxPool2d", image, nn::AdaptiveMaxPool2dOptions({3, 2}));
  all.module<nn::AdaptiveMaxPool3dImpl>("AdaptiveMaxPool3d", volume, nn::AdaptiveMaxPool3dOptions({2, 3, 2}));
  all.module<nn::FractionalMaxPool2dImpl>("FractionalMaxPool2d", floats({{1, 2, 6, 5}}),
                                          nn::FractionalMaxPool2dOptions(2).output_size(3))
      .is_random = true;
  all.module<nn::FractionalMaxPool3dImpl>("FractionalMaxPool3d", floats({{1, 1, 5, 5, 5}}),
                                          nn::FractionalMaxPool3dOptions(2).output_size(3))
      .is_random = true;
});

/// Adds a module that puts the elements of its first input where the maxima of its second are.
template <class Unpool, class Pool>
void add_unpooling(Catalog& all, const std::string& name, std::vector<Shape> shapes) {
  Operator& op = all.add({.name = name,
                          .inputs = floats(std::move(shapes)),
                          .make = [] { return std::make_shared<Unpool>(2); },
                          .forward =
                              [](nn::Module& module, const Tensors& in) {
                                const auto indices = std::get<1>(Pool(2).forward_with_indices(in[1]));
                                return dynamic_cast<Unpool&>(module).forward(in[0], indices);
                              }});
  op.differentiable = 1;
}

const Registration kUnpooling([](Catalog& all) {
  add_unpooling<nn::MaxUnpool1dImpl, nn::MaxPool1dImpl>(all, "MaxUnpool1d", {{1, 2, 3}, {1, 2, 6}});
  add_unpooling<nn::MaxUnpool2dImpl, nn::MaxPool2dImpl>(all, "MaxUnpool2d", {{1, 2, 2, 2}, {1, 2, 4, 4}});
  add_unpooling<nn::MaxUnpool3dImpl, nn::MaxPool3dImpl>(all, "MaxUnpool3d", {{1, 1, 1, 2, 1}, {1, 1, 2, 4, 2}});
});

const Registration kPadding([](Catalog& all) {
  all.module<nn::ConstantPad1dImpl>("ConstantPad1d", line, nn::ConstantPad1dOptions({1, 2}, 0.5));
  all.module<nn::ConstantPad2dImpl>("ConstantPad2d", image, nn::ConstantPad2dOptions({1, 0, 2, 1}, 0.5));
  all.module<nn::ConstantPad3dImpl>("ConstantPad3d", volume, nn::ConstantPad3dOptions({1, 0, 1, 1, 0, 1}, 0.5));
  all.module<nn::ZeroPad1dImpl>("ZeroPad1d", line, nn::ZeroPad1dOptions({1, 2}));
  all.module<nn::ZeroPad2dImpl>("ZeroPad2d", image, nn::ZeroPad2dOptions({1, 0, 2, 1}));
  all.module<nn::ZeroPad3dImpl>("ZeroPad3d", volume, nn::ZeroPad3dOptions({1, 0, 1, 1, 0, 1}));
  all.module<nn::ReflectionPad1dImpl>("ReflectionPad1d", line, nn::ReflectionPad1dOptions({1, 2}));
  all.module<nn::ReflectionPad2dImpl>("ReflectionPad2d", image, nn::ReflectionPad2dOptions({1, 0, 2, 1}));
  all.module<nn::ReflectionPad3dImpl>("ReflectionPad3d", volume, nn::ReflectionPad3dOptions({1, 0, 1, 1, 0, 1}));
  all.module<nn::ReplicationPad1dImpl>("ReplicationPad1d", line, nn::ReplicationPad1dOptions({1, 2}));
  all.module<nn::ReplicationPad2dImpl>("ReplicationPad2d", image, nn::ReplicationPad2dOptions({1, 0, 2, 1}));
  all.module<nn::ReplicationPad3dImpl>("ReplicationPad3d", volume, nn::ReplicationPad3dOptions({1, 0, 1, 1, 0, 1}));
});

const Registration kResampling([](Catalog& all) {
  const auto add = [&](const std::string& mode, const Shape& shape, const nn::UpsampleOptions& options) {
    all.module<nn::UpsampleImpl>("Upsample, " + mode, floats({shape}), options);
  };
  const auto by = [](std::vector<double> scales) { return nn::UpsampleOptions().scale_factor(scales); };
  add("nearest 1d", {1, 2, 3}, by({2}).mode(torch::kNearest));
  add("nearest 2d", {1, 1, 2, 3}, by({2, 1.5}).mode(torch::kNearest));
  add("nearest 3d", {1, 1, 2, 2, 2}, by({2, 1, 1.5}).mode(torch::kNearest));
  add("linear", {1, 2, 3}, by({2}).mode(torch::kLinear).align_corners(false));
  add("bilinear", {1, 1, 2, 3}, by({2, 1.5}).mode(torch::kBilinear).align_corners(true));
  add("bicubic", {1, 1, 3, 3}, by({2, 1.5}).mode(torch::kBicubic).align_corners(false));
  add("trilinear", {1, 1, 2, 2, 2}, by({2, 1, 1.5}).mode(torch::kTrilinear).align_corners(false));
});

const Registration kReshaping([](Catalog& all) {
  all.module<nn::FlattenImpl>("Flatten", floats({{2, 2, 3}}));
  all.module<nn::UnflattenImpl>("Unflatten", floats({{2, 6}}), nn::UnflattenOptions(1, {2, 3}));
  all.module<nn::FoldImpl>("Fold", floats({{1, 8, 4}}), nn::FoldOptions({3, 3}, {2, 2}));
  all.module<nn::UnfoldImpl>("Unfold", floats({{1, 2, 3, 3}}), nn::UnfoldOptions({2, 2}));
  all.module<nn::PixelShuffleImpl>("PixelShuffle", floats({{1, 4, 2, 3}}), 2);
  all.module<nn::PixelUnshuffleImpl>("PixelUnshuffle", floats({{1, 1, 4, 2}}), 2);
});

const Registration kNorms([](Catalog& all) {
  const auto batch = nn::BatchNormOptions(3).affine(false).track_running_stats(false);
  all.module<nn::BatchNorm1dImpl>("BatchNorm1d, holding nothing", floats({{4, 3}}), batch);
  all.module<nn::BatchNorm2dImpl>("BatchNorm2d, holding nothing", floats({{2, 3, 2, 1}}), batch);
  all.module<nn::BatchNorm3dImpl>("BatchNorm3d, holding nothing", floats({{2, 3, 2, 1, 1}}), batch);
  all.module<nn::InstanceNorm1dImpl>("InstanceNorm1d, holding nothing", floats({{1, 3, 4}}), 3);
  all.module<nn::InstanceNorm2dImpl>("InstanceNorm2d, holding nothing", floats({{1, 3, 2, 2}}), 3);
  all.module<nn::InstanceNorm3dImpl>("InstanceNorm3d, holding nothing", floats({{1, 3, 2, 1, 2}}), 3);
  all.module<nn::LayerNormImpl>("LayerNorm, holding nothing", floats({{2, 4}}),
                                nn::LayerNormOptions({4}).elementwise_affine(false));
  all.module<nn::GroupNormImpl>("GroupNorm, holding nothing", floats({{1, 4, 3}}),
                                nn::GroupNormOptions(2, 4).affine(false));
  all.module<nn::LocalResponseNormImpl>("LocalResponseNorm", floats({{1, 4, 2, 2}}), 3);
  all.module<nn::CrossMapLRN2dImpl>("CrossMapLRN2d", floats({{1, 4, 2, 2}}), 3).refusal = {
      "It is a `torch::autograd::Function`, which LibTorch refuses under every transform. Use `LocalResponseNorm`.",
      "torch::autograd::Function"};
});

}  // namespace
}  // namespace graft::testing
