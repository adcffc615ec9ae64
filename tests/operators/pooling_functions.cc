// Pooling of torch::nn::functional.
#include <torch/nn/functional/pooling.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace F = torch::nn::functional;

const auto line = floats({{1, 2, 6}});
const auto image = floats({{1, 2, 4, 5}});
const auto volume = floats({{1, 1, 4, 4, 4}});

const Registration kAverages([](Catalog& all) {
  all.function("avg_pool1d", line,
               [](auto& in) { return F::avg_pool1d(in[0], F::AvgPool1dFuncOptions(3).stride(2).padding(1)); });
  all.function("avg_pool2d", image, [](auto& in) {
    return F::avg_pool2d(in[0],
                         F::AvgPool2dFuncOptions(2).padding(1).ceil_mode(true).count_include_pad(false).stride(2));
  });
  all.function("avg_pool3d", volume,
               [](auto& in) { return F::avg_pool3d(in[0], F::AvgPool3dFuncOptions(2).divisor_override(3).stride(1)); });
  all.function("adaptive_avg_pool1d", line,
               [](auto& in) { return F::adaptive_avg_pool1d(in[0], F::AdaptiveAvgPool1dFuncOptions(4)); });
  all.function("adaptive_avg_pool2d", image, [](auto& in) {
    return F::adaptive_avg_pool2d(in[0], F::AdaptiveAvgPool2dFuncOptions({3, 2}));
  });
  all.function("adaptive_avg_pool3d", volume, [](auto& in) {
    return F::adaptive_avg_pool3d(in[0], F::AdaptiveAvgPool3dFuncOptions({2, 3, 2}));
  });
  all.function("lp_pool1d", line, [](auto& in) { return F::lp_pool1d(in[0], F::LPPool1dFuncOptions(2, 2)); });
  all.function("lp_pool2d", image, [](auto& in) { return F::lp_pool2d(in[0], F::LPPool2dFuncOptions(2, {2, 2})); });
  all.function("lp_pool3d", volume, [](auto& in) { return F::lp_pool3d(in[0], F::LPPool3dFuncOptions(2, {2, 2, 2})); });
});

const Registration kMaxima([](Catalog& all) {
  all.function("max_pool1d", line, [](auto& in) { return F::max_pool1d(in[0], F::MaxPool1dFuncOptions(2)); });
  all.function("max_pool1d, dilated", line, [](auto& in) {
    return F::max_pool1d(in[0], F::MaxPool1dFuncOptions(2).dilation(2).padding(1).ceil_mode(true));
  });
  all.function("max_pool2d", image, [](auto& in) { return F::max_pool2d(in[0], F::MaxPool2dFuncOptions(2)); });
  all.function("max_pool2d, dilated", image, [](auto& in) {
    return F::max_pool2d(in[0], F::MaxPool2dFuncOptions(2).dilation(2).padding(1).ceil_mode(true));
  });
  all.function("max_pool2d, of one image", floats({{2, 4, 4}}),
               [](auto& in) { return F::max_pool2d(in[0], F::MaxPool2dFuncOptions(2)); });
  all.function("max_pool3d", volume, [](auto& in) { return F::max_pool3d(in[0], F::MaxPool3dFuncOptions(2)); });
  all.function("max_pool1d_with_indices", line,
               [](auto& in) { return F::max_pool1d_with_indices(in[0], F::MaxPool1dFuncOptions(2)); });
  all.function("max_pool2d_with_indices", image,
               [](auto& in) { return F::max_pool2d_with_indices(in[0], F::MaxPool2dFuncOptions(2)); });
  all.function("max_pool3d_with_indices", volume,
               [](auto& in) { return F::max_pool3d_with_indices(in[0], F::MaxPool3dFuncOptions(2)); });
});

const Registration kAdaptiveMaxima([](Catalog& all) {
  const F::AdaptiveMaxPool1dFuncOptions one(4);
  const F::AdaptiveMaxPool2dFuncOptions two({3, 2});
  const F::AdaptiveMaxPool3dFuncOptions three({2, 3, 2});
  all.function("adaptive_max_pool1d", line, [=](auto& in) { return F::adaptive_max_pool1d(in[0], one); });
  all.function("adaptive_max_pool2d", image, [=](auto& in) { return F::adaptive_max_pool2d(in[0], two); });
  all.function("adaptive_max_pool3d", volume, [=](auto& in) { return F::adaptive_max_pool3d(in[0], three); });
  all.function("adaptive_max_pool1d_with_indices", line,
               [=](auto& in) { return F::adaptive_max_pool1d_with_indices(in[0], one); });
  all.function("adaptive_max_pool2d_with_indices", image,
               [=](auto& in) { return F::adaptive_max_pool2d_with_indices(in[0], two); });
  all.function("adaptive_max_pool3d_with_indices", volume,
               [=](auto& in) { return F::adaptive_max_pool3d_with_indices(in[0], three); });
});

const Registration kFractionalMaxima([](Catalog& all) {
  const auto two = [](const Tensor& samples) {
    return F::FractionalMaxPool2dFuncOptions(2).output_size(3)._random_samples(samples);
  };
  const auto three = [](const Tensor& samples) {
    return F::FractionalMaxPool3dFuncOptions(2).output_size(3)._random_samples(samples);
  };
  const auto image_and_samples = joined({floats({{1, 2, 6, 5}}), fractions({{1, 2, 2}})});
  const auto volume_and_samples = joined({floats({{1, 1, 5, 5, 5}}), fractions({{1, 1, 3}})});
  const auto add = [](Operator& op) { op.differentiable = 1; };
  add(all.function("fractional_max_pool2d", image_and_samples,
                   [=](auto& in) { return F::fractional_max_pool2d(in[0], two(in[1])); }));
  add(all.function("fractional_max_pool2d_with_indices", image_and_samples,
                   [=](auto& in) { return F::fractional_max_pool2d_with_indices(in[0], two(in[1])); }));
  add(all.function("fractional_max_pool3d", volume_and_samples,
                   [=](auto& in) { return F::fractional_max_pool3d(in[0], three(in[1])); }));
  add(all.function("fractional_max_pool3d_with_indices", volume_and_samples,
                   [=](auto& in) { return F::fractional_max_pool3d_with_indices(in[0], three(in[1])); }));
  all.function("fractional_max_pool2d, of random windows", floats({{1, 2, 6, 5}}),
               [=](auto& in) { return F::fractional_max_pool2d(in[0], two({})); })
      .is_random = true;
  all.function("fractional_max_pool3d, of random windows", floats({{1, 1, 5, 5, 5}}),
               [=](auto& in) { return F::fractional_max_pool3d(in[0], three({})); })
      .is_random = true;
});

const Registration kUnpooling([](Catalog& all) {
  // The indices are those of a maximum in each window, from a second input.
  all.function("max_unpool1d", floats({{1, 2, 3}, {1, 2, 6}}),
               [](auto& in) {
                 const auto indices = std::get<1>(F::max_pool1d_with_indices(in[1], F::MaxPool1dFuncOptions(2)));
                 return F::max_unpool1d(in[0], indices, F::MaxUnpool1dFuncOptions(2));
               })
      .differentiable = 1;
  all.function("max_unpool2d", floats({{1, 2, 2, 2}, {1, 2, 4, 5}}),
               [](auto& in) {
                 const auto indices = std::get<1>(F::max_pool2d_with_indices(in[1], F::MaxPool2dFuncOptions(2)));
                 return F::max_unpool2d(in[0], indices,
                                        F::MaxUnpool2dFuncOptions(2).output_size(std::vector<int64_t>{1, 2, 4, 5}));
               })
      .differentiable = 1;
  all.function("max_unpool3d", floats({{1, 1, 1, 2, 1}, {1, 1, 2, 4, 2}}),
               [](auto& in) {
                 const auto indices = std::get<1>(F::max_pool3d_with_indices(in[1], F::MaxPool3dFuncOptions(2)));
                 return F::max_unpool3d(in[0], indices, F::MaxUnpool3dFuncOptions(2));
               })
      .differentiable = 1;
});

}  // namespace
}  // namespace graft::testing
