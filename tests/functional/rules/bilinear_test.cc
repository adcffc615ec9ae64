// bilinear under transforms equals LibTorch's own code without.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

Tensor bilinear(const Tensors& in) { return at::bilinear(in[0], in[1], in[2], in[3]); }

TEST(BilinearTest, EqualsTheLoop) {
  check_set_ups({.name = "batch",
                 .f = bilinear,
                 .make =
                     [] {
                       return Tensors{random({2, 3}), random({2, 4}), random({2, 3, 4}), random({2})};
                     },
                 .differentiable = 4});
  check_set_ups({.name = "one vector",
                 .f = bilinear,
                 .make =
                     [] {
                       return Tensors{random({3}), random({4}), random({2, 3, 4}), random({2})};
                     },
                 .differentiable = 4});
}

TEST(BilinearTest, EqualsTheLoopWithoutABias) {
  check_set_ups({.name = "no bias",
                 .f = [](const Tensors& in) { return at::bilinear(in[0], in[1], in[2], {}); },
                 .make =
                     [] {
                       return Tensors{random({2, 1, 3}), random({2, 1, 2}), random({2, 3, 2})};
                     },
                 .differentiable = 3});
}

TEST(BilinearTest, ChecksItsArguments) {
  const auto call = [](const Tensor& right, const Tensor& bias) {
    const Tensor lefts = random({6, 2, 3}), weight = random({5, 3, 4});
    return [=] { vmap([&](const Tensor& left) { return at::bilinear(left, right, weight, bias); })(lefts); };
  };
  EXPECT_THAT(call(random({4}), random({5})), ThrowsWith<c10::Error>("input dimensions do not match: got 2 and 1"));
  EXPECT_THAT(call(random({1, 4}), random({5})), ThrowsWith<c10::Error>("at dim 0: got 2 and 1"));
  EXPECT_THAT(call(random({2, 1}), random({5})), ThrowsWith<c10::Error>("input2 size does not match weight size"));
  EXPECT_THAT(call(random({2, 4}), random({1})), ThrowsWith<c10::Error>("bias size does not match weight size"));
}

TEST(TrilinearTest, EqualsTheLoop) {
  for (const bool sums : {true, false}) {
    check_set_ups({.name = "_trilinear",
                   .f =
                       [=](const Tensors& in) {
                         const std::vector<int64_t> summed = sums ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{};
                         return at::_trilinear(in[0], in[1], in[2], {1}, {2}, {1}, summed);
                       },
                   .make =
                       [] {
                         return Tensors{random({2, 3}), random({2, 4}), random({2, 3})};
                       },
                   .differentiable = 3});
  }
}

}  // namespace
}  // namespace graft::testing
