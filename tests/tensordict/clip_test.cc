#include "tensordict/clip.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/utils/clip_grad.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "functional/grad.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;

TensorDict example() {
  return TensorDict({{"a", at::linspace(-3, 3, 6, at::kDouble).view({2, 3})}, {"b", at::tensor({2., -1.})}}, {2});
}

/// What LibTorch makes of parameters with these gradients.
TensorDict clipped_by_libtorch(const TensorDict& gradients, double max_norm) {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& gradient : gradients.values()) {
    parameters.push_back(at::zeros_like(gradient).requires_grad_());
    parameters.back().mutable_grad() = gradient.clone();
  }
  torch::nn::utils::clip_grad_norm_(parameters, max_norm);
  std::vector<at::Tensor> clipped;
  for (const at::Tensor& parameter : parameters) clipped.push_back(parameter.grad());
  return gradients.with_values(clipped);
}

TEST(ClipTest, IsThatOfLibTorch) {
  for (const double max_norm : {0.5, 2., 100.}) {
    const TensorDict expected = clipped_by_libtorch(example(), max_norm);
    EXPECT_THAT(clip_by_global_norm(example(), max_norm), TensorDictNear(expected, 1e-12));
    const TensorDict td = example();
    const at::Tensor norm = clip_by_global_norm_(td, max_norm);
    EXPECT_THAT(td, TensorDictNear(expected, 1e-12));
    EXPECT_NEAR(norm.item<double>(), at::cat({example()["a"].flatten(), example()["b"]}).norm().item<double>(), 1e-12);
  }
}

TEST(ClipTest, EverySampleCanBeClippedOnItsOwn) {
  const TensorDict td = example(), got = clip_by_global_norm(td, 2, {.batch_dims = 1});
  for (int64_t i = 0; i < 2; ++i) {
    const TensorDict expected = clipped_by_libtorch(TensorDict({{"a", td["a"][i]}, {"b", td["b"][i]}}), 2);
    EXPECT_THAT(TensorDict({{"a", got["a"][i]}, {"b", got["b"][i]}}), TensorDictNear(expected, 1e-12));
  }
  EXPECT_THAT(vmap([](const TensorDict& one) { return clip_by_global_norm(one, 2); })(td), TensorDictNear(got, 1e-12));
  clip_by_global_norm_(td, 2, {.batch_dims = 1});
  EXPECT_THAT(td, TensorDictNear(got, 1e-12));
}

TEST(ClipTest, GradientsFlowThroughTheFactor) {
  const TensorDict td = example();
  const auto f = [](const TensorDict& tree) { return (clip_by_global_norm(tree, 2)["a"] * at::arange(3)).sum(); };
  const at::Tensor slope = grad(f)(td)["b"];
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < 2; ++i) {
    const at::Tensor step = (at::arange(2) == i).to(at::kDouble) * kStep;
    const auto at_b = [&](const at::Tensor& b) {
      return f(TensorDict({{"a", td["a"]}, {"b", b}}, {2})).item<double>();
    };
    EXPECT_NEAR(slope[i].item<double>(), (at_b(td["b"] + step) - at_b(td["b"] - step)) / (2 * kStep), 1e-7);
  }
  const at::Tensor b = td["b"].clone().requires_grad_();  // without wrappers
  f(TensorDict({{"a", td["a"]}, {"b", b}}, {2})).backward();
  EXPECT_TRUE(b.grad().allclose(slope));
}

TEST(ClipTest, DtypesAndLocksStay) {
  TensorDict td({{"half", at::full({2, 3}, 9, at::kHalf)}, {"double", at::full({2}, 9, at::kDouble)}}, {2});
  td.lock_();
  for (const int64_t batch_dims : {0, 1}) {
    const TensorDict got = clip_by_global_norm(td, 1, {.batch_dims = batch_dims});
    EXPECT_EQ(got["half"].scalar_type(), at::kHalf);
    EXPECT_EQ(got["double"].scalar_type(), at::kDouble);
    EXPECT_TRUE(got.is_locked());
  }
}

TEST(ClipTest, ATensorUnderTwoNamesIsScaledOnce) {
  const at::Tensor w = at::full({2}, 3., at::kDouble);
  const TensorDict tied({{"a", w}, {"b", w}});
  EXPECT_NEAR(clip_by_global_norm_(tied, 1).item<double>(), 6, 1e-12);
  EXPECT_TRUE(w.allclose(at::full({2}, 0.5, at::kDouble), 1e-5));
}

TEST(ClipTest, NothingIsScaledIfOneLeafCannotBe) {
  const TensorDict td({{"a", at::ones({2})}, {"b", at::ones({1}).expand({2})}});
  EXPECT_THAT([&] { clip_by_global_norm_(td, 1); }, ThrowsWith<c10::ValueError>("clip_by_global_norm_", "\"b\""));
  EXPECT_TRUE(td["a"].equal(at::ones({2})));
}

TEST(ClipTest, ANormThatIsNotFiniteThrowsIfAsked) {
  const TensorDict td({{"a", at::tensor({1., std::numeric_limits<double>::infinity()})}});
  EXPECT_THAT([&] { clip_by_global_norm_(td, 1, {.error_if_nonfinite = true}); },
              ThrowsWith<c10::Error>("clip_by_global_norm_", "not finite", "unchanged"));
  EXPECT_EQ(td["a"][0].item<double>(), 1);
  EXPECT_EQ(clip_by_global_norm(td, 1)["a"][0].item<double>(), 0);
  EXPECT_THAT(
      [&] {
        clip_by_global_norm(TensorDict({{"n", at::ones({2}, at::kLong)}}), 1);
      },
      ThrowsWith<c10::ValueError>("\"n\": dtype long"));
}

TEST(ClipTest, AnEmptyTreeStaysEmpty) {
  EXPECT_TRUE(clip_by_global_norm(TensorDict(), 1).empty());
  EXPECT_EQ(clip_by_global_norm_(TensorDict(), 1).item<double>(), 0);
}

TEST(ClipTest, ANumberWithoutDimsKeepsItsDtype) {
  const TensorDict td({{"w", at::ones({3}, at::kDouble)}, {"s", at::ones({})}});
  EXPECT_EQ(clip_by_global_norm(td, 1)["s"].scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace graft
