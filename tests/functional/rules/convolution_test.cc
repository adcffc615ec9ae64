// Convolutions under transforms, with one number for all dims as stride, padding and dilation, equal those without.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

using Convolution = std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)>;

/// The shapes of x, weight and bias.
using Shapes = std::vector<std::vector<int64_t>>;

void check(const std::string& name, const Shapes& shapes, const Convolution& convolution) {
  check_set_ups({.name = name,
                 .f = [=](const Tensors& in) { return convolution(in[0], in[1], in[2]); },
                 .make =
                     [=] {
                       Tensors inputs;
                       for (const auto& shape : shapes) inputs.push_back(random(shape));
                       return inputs;
                     },
                 .differentiable = 3});
}

TEST(ConvolutionTest, EqualsTheLoopByDefault) {
  check("conv1d", {{2, 2, 3}, {3, 2, 2}, {3}},
        [](auto& x, auto& weight, auto& bias) { return at::conv1d(x, weight, bias); });
  check("conv2d", {{2, 2, 3, 3}, {3, 2, 2, 2}, {3}},
        [](auto& x, auto& weight, auto& bias) { return at::conv2d(x, weight, bias); });
  check("conv3d", {{1, 1, 2, 2, 3}, {2, 1, 2, 2, 2}, {2}},
        [](auto& x, auto& weight, auto& bias) { return at::conv3d(x, weight, bias); });
  check("conv_transpose1d", {{2, 2, 3}, {2, 3, 2}, {3}},
        [](auto& x, auto& weight, auto& bias) { return at::conv_transpose1d(x, weight, bias); });
  check("conv_transpose2d", {{2, 2, 2, 2}, {2, 3, 2, 2}, {3}},
        [](auto& x, auto& weight, auto& bias) { return at::conv_transpose2d(x, weight, bias); });
  check("conv_transpose3d", {{1, 1, 2, 1, 2}, {1, 2, 2, 2, 1}, {2}},
        [](auto& x, auto& weight, auto& bias) { return at::conv_transpose3d(x, weight, bias); });
}

TEST(ConvolutionTest, EqualsTheLoopWithoutABias) {
  check_set_ups({.name = "no bias",
                 .f = [](const Tensors& in) { return at::conv2d(in[0], in[1]); },
                 .make =
                     [] {
                       return Tensors{random({2, 2, 3, 3}), random({3, 2, 2, 2})};
                     },
                 .differentiable = 2});
}

TEST(ConvolutionTest, EqualsTheLoopOnInputWithoutBatch) {
  check("conv2d", {{2, 3, 3}, {3, 2, 2, 2}, {3}},
        [](auto& x, auto& weight, auto& bias) { return at::conv2d(x, weight, bias); });
  check("conv_transpose2d", {{2, 2, 2}, {2, 3, 2, 2}, {3}},
        [](auto& x, auto& weight, auto& bias) { return at::conv_transpose2d(x, weight, bias); });
}

TEST(ConvolutionTest, EqualsTheLoopWithOneNumberForAllDims) {
  check("conv2d", {{1, 2, 5, 5}, {4, 1, 2, 2}, {4}}, [](auto& x, auto& weight, auto& bias) {
    return at::conv2d(x, weight, bias, /*stride=*/2, /*padding=*/1, /*dilation=*/2, /*groups=*/2);
  });
  check("conv_transpose2d", {{1, 2, 2, 2}, {2, 1, 2, 2}, {2}}, [](auto& x, auto& weight, auto& bias) {
    return at::conv_transpose2d(x, weight, bias, /*stride=*/2, /*padding=*/1, /*output_padding=*/1, /*groups=*/2,
                                /*dilation=*/1);
  });
}

TEST(ConvolutionTest, EqualsTheLoopWithANumberForEachDim) {
  check("conv2d", {{1, 2, 5, 4}, {2, 2, 2, 2}, {2}}, [](auto& x, auto& weight, auto& bias) {
    return at::conv2d(x, weight, bias, /*stride=*/{2, 1}, /*padding=*/at::IntArrayRef({0, 1}), /*dilation=*/{1, 2});
  });
}

TEST(ConvolutionTest, EqualsTheLoopWithPaddingByName) {
  for (const char* padding : {"same", "valid"}) {
    check("conv1d", {{2, 2, 3}, {3, 2, 2}, {3}},
          [=](auto& x, auto& weight, auto& bias) { return at::conv1d(x, weight, bias, 1, padding); });
    check("conv2d", {{2, 2, 3, 3}, {3, 2, 2, 2}, {3}},
          [=](auto& x, auto& weight, auto& bias) { return at::conv2d(x, weight, bias, 1, padding); });
    check("conv3d", {{1, 1, 2, 2, 2}, {2, 1, 2, 1, 2}, {2}},
          [=](auto& x, auto& weight, auto& bias) { return at::conv3d(x, weight, bias, 1, padding); });
  }
}

TEST(ConvolutionTest, SaysWhichListHasAWrongLength) {
  const Tensor x = random({3, 1, 2, 4, 4}), weight = random({2, 2, 2, 2});
  const auto call = [&](at::IntArrayRef stride) {
    vmap([&](const Tensor& sample) { return at::conv2d(sample, weight, {}, stride); })(x);
  };
  EXPECT_THAT([&] { call({1, 1, 1}); }, ThrowsWith<c10::Error>("expected stride to be a single integer value"));
}

}  // namespace
}  // namespace graft::testing
