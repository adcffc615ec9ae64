#include "tensordict/internal/transformed.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "functional/internal/transform_level.h"

namespace graft::internal {
namespace {

TEST(TransformedTest, PlainAndUndefinedTensorsAreNot) {
  EXPECT_FALSE(is_transformed(at::Tensor()));
  EXPECT_FALSE(is_transformed(at::ones({2})));
  EXPECT_FALSE(is_transformed(at::ones({2}).set_requires_grad(true)));
}

TEST(TransformedTest, ValuesOfALevelAre) {
  const at::Tensor plain = at::ones({2});
  const VmapLevel vmap(/*batch_size=*/2, Randomness::kError);
  EXPECT_TRUE(is_transformed(vmap.batch(plain, 0)));
  EXPECT_FALSE(is_transformed(plain));
  EXPECT_FALSE(is_transformed(vmap.unbatch(vmap.batch(plain, 0), 0)));
  const GradLevel grad;
  EXPECT_TRUE(is_transformed(grad.wrap(plain)));
  EXPECT_TRUE(is_transformed(grad.wrap(vmap.batch(plain, 0))));
  EXPECT_FALSE(is_transformed(grad.unwrap(grad.wrap(plain))));
}

TEST(TransformedTest, ValuesThatOutliveTheirLevelStillAre) {
  const at::Tensor plain = at::ones({2});
  at::Tensor value;
  {
    const GradLevel grad;
    value = grad.wrap(plain);
  }
  EXPECT_TRUE(is_transformed(value));
}

}  // namespace
}  // namespace graft::internal
