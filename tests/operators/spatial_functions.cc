// Padding, resampling, grids, folds and shuffles of torch::nn::functional.
#include <torch/nn/functional/fold.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/pixelshuffle.h>
#include <torch/nn/functional/upsampling.h>
#include <torch/nn/functional/vision.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace F = torch::nn::functional;

const Registration kPadding([](Catalog& all) {
  const auto add = [&](const std::string& mode_name, const F::PadFuncOptions::mode_t& mode) {
    const auto add_dims = [&](const std::string& dims, const Shape& shape, const std::vector<int64_t>& pad) {
      all.function("pad, " + mode_name + ", " + dims, floats({shape}),
                   [=](auto& in) { return F::pad(in[0], F::PadFuncOptions(pad).mode(mode)); });
    };
    add_dims("1d", {2, 2, 4}, {1, 2});
    add_dims("2d", {1, 2, 3, 4}, {1, 2, 0, 1});
    add_dims("3d", {1, 1, 3, 2, 3}, {1, 0, 0, 1, 1, 1});
  };
  add("constant", torch::kConstant);
  add("reflect", torch::kReflect);
  add("replicate", torch::kReplicate);
  add("circular", torch::kCircular);
  all.function("pad, by a negative width", floats({{2, 4}}), [](auto& in) {
    return F::pad(in[0], F::PadFuncOptions({-1, 2}).value(0.5));
  });
});

const Registration kResampling([](Catalog& all) {
  const auto add = [&](const std::string& name, const Shape& shape, const F::InterpolateFuncOptions& options) {
    all.function("interpolate, " + name, floats({shape}), [=](auto& in) { return F::interpolate(in[0], options); });
  };
  const auto to = [](std::vector<int64_t> size) { return F::InterpolateFuncOptions().size(size); };
  const auto by = [](std::vector<double> scales) { return F::InterpolateFuncOptions().scale_factor(scales); };
  add("nearest, 1d", {2, 1, 4}, to({7}).mode(torch::kNearest));
  add("nearest, 2d", {1, 1, 2, 3}, by({2, 1.5}).mode(torch::kNearest));
  add("nearest, 3d", {1, 1, 2, 2, 2}, to({3, 2, 4}).mode(torch::kNearest));
  add("nearest-exact, 1d", {2, 1, 4}, to({7}).mode(torch::kNearestExact));
  add("nearest-exact, 2d", {1, 1, 2, 3}, by({2, 1.5}).mode(torch::kNearestExact));
  add("nearest-exact, 3d", {1, 1, 2, 2, 2}, to({3, 2, 4}).mode(torch::kNearestExact));
  add("linear", {2, 1, 4}, to({7}).mode(torch::kLinear).align_corners(false));
  add("bilinear", {1, 1, 3, 3}, to({4, 5}).mode(torch::kBilinear).align_corners(false));
  add("bilinear, aligned corners", {1, 1, 3, 3}, to({4, 5}).mode(torch::kBilinear).align_corners(true));
  add("bilinear, smoothed", {1, 1, 5, 5}, to({3, 2}).mode(torch::kBilinear).align_corners(false).antialias(true));
  add("bicubic", {1, 1, 4, 4}, to({5, 6}).mode(torch::kBicubic).align_corners(false));
  add("bicubic, smoothed", {1, 1, 5, 5}, to({3, 2}).mode(torch::kBicubic).align_corners(false).antialias(true));
  add("trilinear", {1, 1, 2, 2, 3}, to({3, 3, 4}).mode(torch::kTrilinear).align_corners(false));
  add("area, 1d", {2, 1, 4}, to({3}).mode(torch::kArea));
  add("area, 2d", {1, 1, 4, 5}, to({3, 2}).mode(torch::kArea));
  add("area, 3d", {1, 1, 3, 2, 4}, to({2, 2, 3}).mode(torch::kArea));
});

const Registration kGrids([](Catalog& all) {
  all.function("affine_grid, 2d", floats({{1, 2, 3}}), [](auto& in) { return F::affine_grid(in[0], {1, 1, 3, 2}); });
  all.function("affine_grid, 2d, aligned corners", floats({{1, 2, 3}}), [](auto& in) {
    return F::affine_grid(in[0], {1, 1, 3, 2}, true);
  });
  all.function("affine_grid, 3d", floats({{1, 3, 4}}), [](auto& in) { return F::affine_grid(in[0], {1, 1, 2, 3, 2}); });
  using Options = F::GridSampleFuncOptions;
  const auto add = [&](const std::string& name, std::vector<Shape> shapes, const Options& options) {
    all.function("grid_sample, " + name, floats(std::move(shapes)),
                 [=](auto& in) { return F::grid_sample(in[0], in[1] * 0.8, options); });
  };
  const auto add_padding = [&](const std::string& name, const Options::padding_mode_t& padding) {
    const std::vector<Shape> images = {{1, 2, 4, 5}, {1, 2, 3, 2}}, volumes = {{1, 1, 3, 4, 2}, {1, 1, 2, 2, 3}};
    const Options options = Options().padding_mode(padding);
    add("bilinear, " + name, images, Options(options).mode(torch::kBilinear).align_corners(false));
    add("bilinear, aligned corners, " + name, images, Options(options).mode(torch::kBilinear).align_corners(true));
    add("nearest, " + name, images, Options(options).mode(torch::kNearest).align_corners(false));
    add("bicubic, " + name, images, Options(options).mode(torch::kBicubic).align_corners(false));
    add("bicubic, aligned corners, " + name, images, Options(options).mode(torch::kBicubic).align_corners(true));
    add("bilinear 3d, " + name, volumes, Options(options).mode(torch::kBilinear).align_corners(false));
    add("nearest 3d, " + name, volumes, Options(options).mode(torch::kNearest).align_corners(true));
  };
  add_padding("zeros", torch::kZeros);
  add_padding("border", torch::kBorder);
  add_padding("reflection", torch::kReflection);
});

const Registration kFolds([](Catalog& all) {
  all.function("fold", floats({{1, 8, 4}}), [](auto& in) {
    return F::fold(in[0], F::FoldFuncOptions({3, 3}, {2, 2}));
  });
  all.function("unfold", floats({{1, 2, 4, 3}}), [](auto& in) {
    return F::unfold(in[0], F::UnfoldFuncOptions({2, 2}).padding(1).stride(2));
  });
  all.function("pixel_shuffle", floats({{1, 4, 2, 3}}),
               [](auto& in) { return F::pixel_shuffle(in[0], F::PixelShuffleFuncOptions(2)); });
  all.function("pixel_unshuffle", floats({{1, 1, 4, 2}}),
               [](auto& in) { return F::pixel_unshuffle(in[0], F::PixelUnshuffleFuncOptions(2)); });
});

}  // namespace
}  // namespace graft::testing
