// Sampling at grids under every transform.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "functional/jvp.h"
#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"

namespace graft::testing {
namespace {

TEST(GridsTest, AffineGridIsRight) {
  for (const bool align_corners : {false, true}) {
    check_set_ups({.name = "affine_grid_generator of an image",
                   .f =
                       [=](auto& in) {
                         return at::affine_grid_generator(in[0], {2, 1, 3, 4}, align_corners);
                       },
                   .make =
                       [] {
                         return Tensors{random({2, 2, 3})};
                       }});
    check_set_ups({.name = "affine_grid_generator of a volume",
                   .f =
                       [=](auto& in) {
                         return at::affine_grid_generator(in[0], {1, 1, 2, 3, 2}, align_corners);
                       },
                   .make =
                       [] {
                         return Tensors{random({1, 3, 4})};
                       }});
  }
}

/// An image and a grid of which a part is outside.
Tensors image_and_grid() { return {random({2, 2, 3, 4}), 1.5 * random({2, 2, 3, 2})}; }

TEST(GridsTest, SamplingOfImagesIsRight) {
  for (const int64_t interpolation : {0, 1, 2}) {
    for (const int64_t padding : {0, 1, 2}) {
      for (const bool align_corners : {false, true}) {
        check_set_ups(
            {.name = c10::str("grid_sampler of an image ", interpolation, padding, align_corners),
             .f = [=](auto& in) { return at::grid_sampler(in[0], in[1], interpolation, padding, align_corners); },
             .make = image_and_grid,
             .differentiable = 2});
      }
    }
  }
}

TEST(GridsTest, SamplingOfVolumesIsRight) {
  for (const int64_t interpolation : {0, 1}) {
    check_set_ups({.name = "grid_sampler of a volume",
                   .f = [=](auto& in) { return at::grid_sampler(in[0], in[1], interpolation, 0, false); },
                   .make =
                       [] {
                         return Tensors{random({1, 2, 2, 3, 2}), random({1, 2, 1, 2, 3})};
                       },
                   .differentiable = 2});
  }
}

TEST(GridsTest, BicubicSamplingIsOfImagesAlone) {
  const Tensor volume = random({1, 1, 2, 2, 2}), grid = random({1, 2, 2, 2, 3});
  const auto f = [&](const Tensor& x) { return at::grid_sampler(x, grid, 2, 0, false); };
  EXPECT_THAT([&] { jvp(f, volume, volume); }, ThrowsWith<c10::Error>("bicubic interpolation only supports 4D input"));
}

}  // namespace
}  // namespace graft::testing
