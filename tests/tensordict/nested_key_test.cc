#include "tensordict/nested_key.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;

TEST(NestedKeyTest, TakesNamesJoinedByDots) {
  EXPECT_NO_THROW(check_path("weight"));
  EXPECT_NO_THROW(check_path("layers.0.weight"));
}

TEST(NestedKeyTest, RefusesEmptyNames) {
  for (const char* path : {"", ".", ".a", "a.", "a..b"}) {
    EXPECT_THAT([&] { check_path(path); }, ThrowsWith<c10::ValueError>("is not a path", path)) << path;
  }
}

TEST(NestedKeyTest, AnEmptyPartStandsForHere) {
  EXPECT_EQ(join_path("a", "b.c"), "a.b.c");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_EQ(join_path("a", ""), "a");
}

TEST(NestedKeyTest, AParentLacksTheLastName) {
  EXPECT_EQ(parent_path("a.b.c"), "a.b");
  EXPECT_EQ(parent_path("a"), "");
  EXPECT_EQ(parent_path(""), "");
}

TEST(NestedKeyTest, BelowEndsAtADot) {
  EXPECT_TRUE(is_below("a.b", "a"));
  EXPECT_FALSE(is_below("ab", "a"));
  EXPECT_FALSE(is_below("a", "a"));
}

}  // namespace
}  // namespace graft
