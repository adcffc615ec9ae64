#include "functional/internal/argnums.h"

#include <gtest/gtest.h>

#include <type_traits>

namespace graft::internal {

TEST(ArgnumsTest, CountFromTheEndIfNegative) {
  EXPECT_TRUE((std::is_same_v<decltype(positions_of<3, -1, 0>()), Positions<2, 0>>));
  EXPECT_TRUE((std::is_same_v<decltype(positions_or_all<2>()), Positions<0, 1>>));
  EXPECT_TRUE((std::is_same_v<decltype(positions_or_first<2>()), Positions<0>>));
}

TEST(ArgnumsTest, NameEachArgumentOnce) {
  EXPECT_TRUE(are_distinct({}));
  EXPECT_TRUE(are_distinct({0, 2, 1}));
  EXPECT_FALSE(are_distinct({0, 0}));
  const auto position = [](auto argnum) { return argument_position<argnum(), 3>(); };
  EXPECT_FALSE(are_distinct({position(std::integral_constant<int, 2>()), position(std::integral_constant<int, -1>())}));
}

}  // namespace graft::internal
