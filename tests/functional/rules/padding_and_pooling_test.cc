// Padding, unpooling, fractional pooling and nearest-exact upsampling under every transform.
#include <gtest/gtest.h>
#include <torch/nn/functional/padding.h>
#include <torch/nn/functional/upsampling.h>

#include <string>
#include <vector>

#include "tests/functional/rules/set_ups.h"

namespace graft::testing {
namespace {

namespace F = torch::nn::functional;

TEST(PaddingAndPoolingTest, PaddingIsRight) {
  for (const F::PadFuncOptions::mode_t& mode :
       {F::PadFuncOptions::mode_t(torch::kConstant), F::PadFuncOptions::mode_t(torch::kReflect),
        F::PadFuncOptions::mode_t(torch::kReplicate), F::PadFuncOptions::mode_t(torch::kCircular)}) {
    check_set_ups({.name = "pad of one dim",
                   .f =
                       [=](auto& in) {
                         return F::pad(in[0], F::PadFuncOptions({1, 2}).mode(mode));
                       },
                   .make =
                       [] {
                         return Tensors{random({2, 2, 4})};
                       }});
    check_set_ups({.name = "pad of two dims",
                   .f =
                       [=](auto& in) {
                         return F::pad(in[0], F::PadFuncOptions({1, 2, 0, 1}).mode(mode));
                       },
                   .make =
                       [] {
                         return Tensors{random({1, 2, 3, 4})};
                       }});
  }
}

/// Inputs of which each element goes to a place of its own.
Tensors to_unpool(const std::vector<int64_t>& shape, int64_t places) {
  const Tensor indices = random({shape[0], shape[1], places}).argsort();
  int64_t elements = 1;
  for (std::size_t i = 2; i < shape.size(); ++i) elements *= shape[i];
  return {random(shape), indices.slice(2, 0, elements).reshape(shape)};
}

TEST(PaddingAndPoolingTest, UnpoolingIsRight) {
  check_set_ups({.name = "max_unpool2d",
                 .f =
                     [](auto& in) {
                       return at::max_unpool2d(in[0], in[1], {4, 3});
                     },
                 .make =
                     [] {
                       return to_unpool({2, 2, 2, 2}, 12);
                     }});
  check_set_ups({.name = "max_unpool2d of one sample",
                 .f =
                     [](auto& in) {
                       return at::max_unpool2d(in[0][0], in[1][0], {4, 3});
                     },
                 .make =
                     [] {
                       return to_unpool({1, 2, 2, 2}, 12);
                     }});
  check_set_ups({.name = "max_unpool3d",
                 .f =
                     [](auto& in) {
                       return at::max_unpool3d(in[0], in[1], {2, 4, 2}, {1, 1, 1}, {0, 0, 0});
                     },
                 .make =
                     [] {
                       return to_unpool({1, 2, 1, 2, 2}, 16);
                     }});
}

Tensors with_samples(const std::vector<int64_t>& shape, const std::vector<int64_t>& samples) {
  return {random(shape), at::rand(samples, at::kDouble)};
}

TEST(PaddingAndPoolingTest, FractionalPoolingIsRight) {
  const auto pool2d = [](auto& in) { return std::get<0>(at::fractional_max_pool2d(in[0], {2, 3}, {3, 2}, in[1])); };
  check_set_ups({.name = "fractional_max_pool2d", .f = pool2d, .make = [] {
                   return with_samples({2, 2, 7, 8}, {2, 2, 2});
                 }});
  check_set_ups({.name = "fractional_max_pool2d of one sample", .f = pool2d, .make = [] {
                   return with_samples({2, 7, 8}, {1, 2, 2});
                 }});
  const auto pool3d = [](auto& in) {
    return std::get<0>(at::fractional_max_pool3d(in[0], {2, 3, 2}, {3, 1, 2}, in[1]));
  };
  check_set_ups({.name = "fractional_max_pool3d", .f = pool3d, .make = [] {
                   return with_samples({2, 2, 7, 6, 5}, {2, 2, 3});
                 }});
  check_set_ups({.name = "indices of fractional_max_pool2d",
                 .f =
                     [](auto& in) {
                       return std::get<1>(at::fractional_max_pool2d(in[0], {2, 3}, {3, 2}, in[1])).to(at::kDouble);
                     },
                 .make =
                     [] {
                       return with_samples({2, 2, 7, 8}, {2, 2, 2});
                     },
                 .differentiable = 0});
}

TEST(PaddingAndPoolingTest, NearestExactUpsamplingIsRight) {
  const auto options = F::InterpolateFuncOptions().mode(torch::kNearestExact);
  const auto check_size = [&](const std::vector<int64_t>& shape, const std::vector<int64_t>& size) {
    check_set_ups({.name = "interpolate to a size",
                   .f = [&](auto& in) { return F::interpolate(in[0], F::InterpolateFuncOptions(options).size(size)); },
                   .make = [&] { return Tensors{random(shape)}; }});
  };
  check_size({2, 1, 4}, {7});
  check_size({2, 1, 4, 3}, {2, 5});
  check_size({1, 2, 2, 3, 2}, {3, 2, 5});
  for (const auto type : {at::kDouble, at::kFloat}) {
    for (const std::vector<double>& scales : {std::vector<double>{2.5, 0.7}, std::vector<double>{3, 1}}) {
      check_set_ups({.name = "interpolate by a factor",
                     .f =
                         [&](auto& in) {
                           const auto by = F::InterpolateFuncOptions(options).scale_factor(scales);
                           return F::interpolate(in[0].to(type), by).to(at::kDouble);
                         },
                     .make =
                         [] {
                           return Tensors{random({2, 1, 4, 5})};
                         },
                     .tolerance = 1e-6});
    }
  }
}

}  // namespace
}  // namespace graft::testing
