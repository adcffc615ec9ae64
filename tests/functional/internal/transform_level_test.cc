#include "functional/internal/transform_level.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

namespace graft::internal {
namespace {

using at::Tensor;

Tensor counting(at::IntArrayRef sizes) { return at::arange(c10::multiply_integers(sizes), at::kDouble).reshape(sizes); }

TEST(VmapLevelTest, IsOnTheStackDuringItsLife) {
  EXPECT_EQ(depth(), 0);
  {
    const VmapLevel outer(2, Randomness::kError);
    EXPECT_EQ(depth(), 1);
    EXPECT_EQ(outer.batch_size(), 2);
    {
      const GradLevel inner;
      EXPECT_EQ(depth(), 2);
    }
    EXPECT_EQ(depth(), 1);
  }
  EXPECT_EQ(depth(), 0);
}

TEST(VmapLevelTest, LeavesTheStackWhenTheBodyThrows) {
  EXPECT_THROW(
      {
        const VmapLevel vmap(2, Randomness::kError);
        const GradLevel grad;
        throw std::runtime_error("body");
      },
      std::runtime_error);
  EXPECT_EQ(depth(), 0);
}

TEST(VmapLevelTest, HidesADimAndShowsItWhereAsked) {
  const Tensor x = counting({2, 3, 4});
  for (int64_t in = 0; in < 3; ++in) {
    const VmapLevel level(x.size(in), Randomness::kError);
    const Tensor hidden = level.batch(x, in);
    auto sizes = x.sizes().vec();
    sizes.erase(sizes.begin() + in);
    EXPECT_EQ(hidden.sizes(), at::IntArrayRef(sizes));
    for (int64_t out = 0; out < 3; ++out) EXPECT_TRUE(level.unbatch(hidden, out).equal(x.movedim(in, out)));
  }
}

TEST(VmapLevelTest, MapsOperators) {
  const Tensor x = counting({2, 3, 4});
  const VmapLevel level(3, Randomness::kError);
  EXPECT_TRUE(level.unbatch(level.batch(x, 1).sum(), 0).equal(x.sum({0, 2})));
}

TEST(VmapLevelTest, ExpandsAResultWithoutHiddenDim) {
  const Tensor x = counting({2, 3});
  const VmapLevel level(5, Randomness::kError);
  const Tensor middle = level.unbatch(x, 1);
  EXPECT_TRUE(middle.equal(at::stack({x, x, x, x, x}, 1)));
  EXPECT_TRUE(middle.is_alias_of(x));
  EXPECT_EQ(level.unbatch(x, 2).sizes(), at::IntArrayRef({2, 3, 5}));
}

TEST(VmapLevelTest, KnowsItsOwnWrappersFromThoseOfOtherLevels) {
  const Tensor x = counting({2, 3});
  const VmapLevel outer(2, Randomness::kError);
  const Tensor of_outer = outer.batch(x, 0);
  const VmapLevel inner(3, Randomness::kError);
  const Tensor of_inner = inner.batch(x, 1);
  EXPECT_TRUE(outer.is_batched(of_outer));
  EXPECT_FALSE(outer.is_batched(of_inner));
  EXPECT_TRUE(inner.is_batched(of_inner));
  EXPECT_FALSE(inner.is_batched(of_outer));
  EXPECT_FALSE(inner.is_batched(x));
  EXPECT_TRUE(inner.is_batched(of_inner * 2));
}

TEST(VmapLevelTest, NestsAsTwoLoops) {
  const Tensor x = counting({2, 3}), y = counting({4, 3}) + 1;
  const VmapLevel rows(2, Randomness::kError);
  const Tensor row = rows.batch(x, 0);
  Tensor products;
  {
    const VmapLevel others(4, Randomness::kError);
    products = others.unbatch(row.dot(others.batch(y, 0)), 0);
  }
  EXPECT_TRUE(rows.unbatch(products, 0).equal(x.mm(y.t())));
}

TEST(VmapLevelTest, TakesAValueThatOutlivedItsLevel) {
  const Tensor x = counting({2});
  Tensor dead;
  {
    const GradLevel ended;
    dead = ended.wrap(x);
  }
  const VmapLevel level(2, Randomness::kError);
  EXPECT_TRUE(level.unbatch(level.batch(dead, 0), 0).equal(x));
}

TEST(VmapLevelTest, DrawsAsAsked) {
  const auto draw = [](Randomness randomness) {
    const VmapLevel level(2, randomness);
    return level.unbatch(at::rand_like(level.batch(at::zeros({2, 8}), 0)), 0);
  };
  const Tensor same = draw(Randomness::kSame), different = draw(Randomness::kDifferent);
  EXPECT_TRUE(same[0].equal(same[1]));
  EXPECT_FALSE(different[0].equal(different[1]));
  EXPECT_ANY_THROW(draw(Randomness::kError));
}

TEST(GradLevelTest, DifferentiatesInside) {
  const Tensor x = counting({3});
  const GradLevel level;
  const Tensor value = level.wrap(x);
  EXPECT_FALSE(level.requires_grad(value));
  value.set_requires_grad(true);
  EXPECT_TRUE(level.requires_grad(value));
  const Tensor square = value.square();
  EXPECT_TRUE(level.requires_grad(square));
  EXPECT_FALSE(level.requires_grad(square.detach()));
  const Tensor gradient = torch::autograd::grad({square.sum()}, {value})[0];
  EXPECT_TRUE(level.unwrap(gradient).equal(2 * x));
  EXPECT_FALSE(x.requires_grad());
}

TEST(GradLevelTest, UnwrapsItsOwnValuesAlone) {
  const Tensor x = counting({3});
  const GradLevel outer;
  const Tensor of_outer = outer.wrap(x);
  const GradLevel inner;
  const Tensor of_inner = inner.wrap(of_outer);
  EXPECT_TRUE(inner.unwrap(of_inner).is_same(of_outer));
  EXPECT_TRUE(inner.unwrap(of_outer).is_same(of_outer));
  EXPECT_TRUE(outer.unwrap(of_outer).is_same(x));
  EXPECT_TRUE(outer.unwrap(x).is_same(x));
}

TEST(GradLevelTest, RequiresGradOnlyInItsOwnLevel) {
  const Tensor leaf = counting({3}).set_requires_grad(true);
  const GradLevel outer;
  const Tensor of_outer = outer.wrap(leaf).set_requires_grad(true);
  const GradLevel inner;
  EXPECT_FALSE(inner.requires_grad(leaf));
  EXPECT_FALSE(inner.requires_grad(of_outer));
  EXPECT_FALSE(inner.requires_grad(inner.wrap(of_outer)));
}

TEST(GradLevelTest, TurnsGradModeOnAndBackOff) {
  const Tensor x = counting({3}), leaf = counting({3}).set_requires_grad(true);
  const at::NoGradGuard no_grad;
  {
    const GradLevel level;
    EXPECT_TRUE(at::GradMode::is_enabled());
    const Tensor value = level.wrap(x).set_requires_grad(true);
    const Tensor product = value * leaf;
    EXPECT_TRUE(level.requires_grad(product));
    EXPECT_FALSE(level.unwrap(product).requires_grad());  // outside nothing is recorded
  }
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST(GradLevelTest, TurnsInferenceModeOffAndBackOn) {
  const c10::InferenceMode inference;
  const Tensor x = counting({3});
  {
    const GradLevel level;
    EXPECT_FALSE(c10::InferenceMode::is_enabled());
    EXPECT_TRUE(at::GradMode::is_enabled());
    const Tensor value = level.wrap(x).set_requires_grad(true);
    EXPECT_TRUE(level.unwrap(torch::autograd::grad({value.square().sum()}, {value})[0]).equal(2 * x));
  }
  EXPECT_TRUE(c10::InferenceMode::is_enabled());
}

TEST(GradLevelTest, RecordsOutsideWhatOrdinaryAutogradNeeds) {
  const Tensor leaf = counting({3}).set_requires_grad(true);
  Tensor result;
  {
    const GradLevel level;
    result = level.unwrap(level.wrap(leaf).square().sum());
  }
  result.backward();
  EXPECT_TRUE(leaf.grad().equal(2 * leaf.detach()));
}

TEST(GradLevelTest, KnowsWhetherSomethingOutsideDifferentiates) {
  const Tensor plain = counting({3}), leaf = counting({3}).set_requires_grad(true);
  {
    const GradLevel level;
    EXPECT_FALSE(level.is_differentiated_outside(level.wrap(plain).set_requires_grad(true)));
    EXPECT_TRUE(level.is_differentiated_outside(level.wrap(leaf).square()));
  }
  {
    const at::NoGradGuard no_grad;
    const GradLevel level;
    EXPECT_FALSE(level.is_differentiated_outside(level.wrap(leaf)));
  }
  {
    const GradLevel outer;
    const VmapLevel between(3, Randomness::kError);
    const GradLevel level;
    const Tensor of_outer = outer.wrap(plain).set_requires_grad(true);
    EXPECT_TRUE(level.is_differentiated_outside(level.wrap(between.batch(of_outer, 0))));
    EXPECT_FALSE(level.is_differentiated_outside(level.wrap(between.batch(outer.wrap(plain), 0))));
  }
}

}  // namespace
}  // namespace graft::internal
