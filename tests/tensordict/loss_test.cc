#include "tensordict/loss.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "tensordict/global_reduce.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictNear;
using testing::ThrowsWith;

/// A loss, and the same from its definition, element by element.
struct Loss {
  std::string name;
  std::function<TensorDict(const TensorDict&, const TensorDict&, at::Reduction::Reduction)> of_trees;
  std::function<at::Tensor(const at::Tensor& difference)> of_leaf;
};

const std::vector<Loss> kLosses{
    {"mse_loss", [](const auto& x, const auto& y, auto r) { return mse_loss(x, y, r); },
     [](const at::Tensor& d) { return d * d; }},
    {"l1_loss", [](const auto& x, const auto& y, auto r) { return l1_loss(x, y, r); },
     [](const at::Tensor& d) { return d.abs(); }},
    {"smooth_l1_loss", [](const auto& x, const auto& y, auto r) { return smooth_l1_loss(x, y, r, 0.5); },
     [](const at::Tensor& d) { return at::where(d.abs() < 0.5, d * d / (2 * 0.5), d.abs() - 0.5 / 2); }},
};

TensorDict predicted() {
  return TensorDict(
      {{"a", at::linspace(-1, 2, 6, at::kDouble).view({2, 3})}, {"b", at::linspace(0, 1, 2, at::kDouble)}}, {2});
}

TensorDict target() {
  return TensorDict({{"b", at::zeros({2}, at::kDouble)}, {"a", at::full({2, 3}, 0.3, at::kDouble)}}, {2});
}

TEST(LossTest, EachReductionIsThatOfTheDifferences) {
  const TensorDict x = predicted(), y = target();
  for (const Loss& loss : kLosses) {
    SCOPED_TRACE(loss.name);
    const at::Tensor a = loss.of_leaf(x["a"] - y["a"]), b = loss.of_leaf(x["b"] - y["b"]);
    EXPECT_THAT(loss.of_trees(x, y, at::Reduction::None), TensorDictNear(TensorDict({{"a", a}, {"b", b}}, {2}), 1e-12));
    EXPECT_THAT(loss.of_trees(x, y, at::Reduction::Mean),
                TensorDictNear(TensorDict({{"a", a.mean()}, {"b", b.mean()}}), 1e-12));
    EXPECT_THAT(loss.of_trees(x, y, at::Reduction::Sum),
                TensorDictNear(TensorDict({{"a", a.sum()}, {"b", b.sum()}}), 1e-12));
  }
}

TEST(LossTest, WorksInsideVmapAndGrad) {
  const TensorDict x = predicted(), y = target();
  for (const Loss& loss : kLosses) {
    SCOPED_TRACE(loss.name);
    const auto total = [&](const TensorDict& tree) { return global_sum(loss.of_trees(tree, y, at::Reduction::Sum)); };
    const TensorDict slopes = grad(total)(x);
    constexpr double kStep = 1e-6;
    at::Tensor ahead = x["b"].clone(), behind = x["b"].clone();
    ahead[1] += kStep;
    behind[1] -= kStep;
    const double slope =
        ((loss.of_leaf(ahead - y["b"]).sum() - loss.of_leaf(behind - y["b"]).sum()) / (2 * kStep)).item<double>();
    EXPECT_NEAR(slopes["b"][1].item<double>(), slope, 1e-6);
    const auto of_sample = [&](const TensorDict& p, const TensorDict& t) {
      return global_sum(loss.of_trees(p, t, at::Reduction::Mean));
    };
    const at::Tensor by_sample = vmap(of_sample)(x, y);
    const at::Tensor expected = loss.of_leaf(x["a"] - y["a"]).mean(1) + loss.of_leaf(x["b"] - y["b"]);
    EXPECT_TRUE(by_sample.allclose(expected, 1e-12));
  }
}

TEST(LossTest, LeavesOfOtherShapesOrKeysAreErrorsNotBroadcast) {
  const TensorDict column({{"a", at::zeros({4, 1})}, {"b", at::zeros({4})}});
  const TensorDict flat({{"a", at::zeros({4})}, {"b", at::zeros({4})}});
  for (const Loss& loss : kLosses) {
    EXPECT_THAT([&] { loss.of_trees(column, flat, at::Reduction::Mean); },
                ThrowsWith<c10::ValueError>(loss.name, "\"a\"", "[4]", "[4, 1]"));
    EXPECT_THAT(
        [&] {
          loss.of_trees(column, TensorDict({{"a", at::zeros({4, 1})}, {"c", at::zeros({4})}}), at::Reduction::Mean);
        },
        ThrowsWith<c10::ValueError>(loss.name, "\"b\"", "\"c\""));
  }
}

TEST(LossTest, LeavesOfOtherDtypesAreListed) {
  const TensorDict td({{"n", at::ones({2}, at::kLong)}, {"x", at::ones({2})}, {"c", at::ones({2}, at::kComplexFloat)}});
  for (const Loss& loss : kLosses) {
    EXPECT_THAT([&] { loss.of_trees(td, td, at::Reduction::Mean); },
                ThrowsWith<c10::ValueError>(loss.name, "\"n\": dtype long", "\"c\""));
  }
}

}  // namespace
}  // namespace graft
