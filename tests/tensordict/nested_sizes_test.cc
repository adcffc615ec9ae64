#include "tensordict/nested_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace graft {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Sizes = std::vector<int64_t>;

/// Part "a" has [3] beyond the tree, "a.b" in it [3, 2].
NestedSizes example() {
  NestedSizes inner, sizes;
  inner.set("b", {2}, {});
  sizes.set("a", {3}, inner);
  return sizes;
}

TEST(NestedSizesTest, AreThoseOfTheInnermostPart) {
  EXPECT_EQ(example().at("a"), Sizes{3});
  EXPECT_EQ(example().at("a.x.y"), Sizes{3});
  EXPECT_EQ(example().at("a.b.x"), (Sizes{3, 2}));
  EXPECT_EQ(example().at("ab"), Sizes{});
  EXPECT_EQ(example().at("z"), Sizes{});
}

TEST(NestedSizesTest, BelowAPartAreWhatIsBeyondIt) {
  EXPECT_THAT(example().below("a").parts(), ElementsAre(Pair("b", Sizes{2})));
  EXPECT_TRUE(example().below("a.b").empty());
}

TEST(NestedSizesTest, KeepNothingThatThePartAroundSays) {
  NestedSizes sizes = example();
  sizes.set("a", {3, 2}, {});
  EXPECT_THAT(sizes.parts(), ElementsAre(Pair("a", Sizes{3, 2})));
  sizes.set("a", {}, {});
  EXPECT_TRUE(sizes.empty());
}

TEST(NestedSizesTest, FollowTheTree) {
  NestedSizes sizes = example();
  sizes.follow({4}, {4, 3});
  EXPECT_THAT(sizes.parts(), ElementsAre(Pair("a.b", Sizes{2})));
  sizes.follow({4, 3}, {});
  EXPECT_THAT(sizes.parts(), ElementsAre(Pair("a.b", Sizes{4, 3, 2})));
}

TEST(NestedSizesTest, DropPartsThatAreNone) {
  NestedSizes sizes = example();
  sizes.keep([](const std::string& part) { return part == "a.b"; });
  EXPECT_THAT(sizes.parts(), ElementsAre(Pair("a.b", Sizes{3, 2})));
}

}  // namespace
}  // namespace graft
