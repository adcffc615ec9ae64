#include "tensordict/key_table.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;

TEST(KeyTableTest, KeepsInsertionOrder) {
  KeyTable keys;
  EXPECT_EQ(keys.insert("z"), 0u);
  EXPECT_EQ(keys.insert("a.b"), 1u);
  EXPECT_EQ(keys.path(0), "z");
  EXPECT_EQ(keys.find("a.b"), 1u);
  EXPECT_EQ(keys.find("a"), std::nullopt);
  EXPECT_TRUE(keys.is_subtree("a"));
  EXPECT_FALSE(keys.is_subtree("z"));
}

TEST(KeyTableTest, APathIsALeafOrASubtreeNeverBoth) {
  KeyTable keys;
  keys.insert("a.b");
  EXPECT_THAT([&] { keys.insert("a"); }, ThrowsWith<c10::ValueError>("\"a\"", "subtree"));
  EXPECT_THAT([&] { keys.insert("a.b.c"); }, ThrowsWith<c10::ValueError>("\"a.b.c\"", "\"a.b\" is a leaf"));
  EXPECT_THAT([&] { keys.insert("a.b"); }, ThrowsWith<c10::ValueError>("already"));
  EXPECT_EQ(keys.size(), 1u);
}

TEST(KeyTableTest, ACopyHasItsOwnIndex) {
  auto original = std::make_unique<KeyTable>();
  original->insert("a.b");
  KeyTable copy(*original);
  original.reset();
  copy.insert("a.c");
  EXPECT_EQ(copy.find("a.b"), 0u);
  EXPECT_EQ(copy.find("a.c"), 1u);
}

TEST(KeyTableTest, ASubsetHasItsOwnSubtrees) {
  KeyTable keys;
  keys.insert("a.b.c"), keys.insert("d.e"), keys.insert("a.f");
  const auto some = keys.subset({2, 1});
  EXPECT_EQ(some->path(0), "a.f");
  EXPECT_EQ(some->find("d.e"), 1u);
  EXPECT_TRUE(some->is_subtree("a"));
  EXPECT_FALSE(some->is_subtree("a.b"));
  EXPECT_EQ(keys.subset({0, 2}, /*prefix=*/2)->path(0), "b.c");
}

TEST(KeyTableTest, TakesAPathOfTenThousandNames) {
  std::string path = "a";
  for (int i = 1; i < 10000; ++i) path += ".a";
  KeyTable keys;
  keys.insert(path);
  EXPECT_EQ(KeyTable(keys).find(path), 0u);
  EXPECT_TRUE(keys.is_subtree("a.a.a"));
  EXPECT_THAT([&] { keys.insert("a.a"); }, ThrowsWith<c10::ValueError>("subtree"));
}

TEST(KeyTableTest, SamePathsLooksPastTheOrder) {
  KeyTable left, right, other;
  left.insert("a"), left.insert("b");
  right.insert("b"), right.insert("a");
  other.insert("a"), other.insert("c");
  EXPECT_TRUE(same_paths(left, right));
  EXPECT_FALSE(same_paths(left, other));
}

}  // namespace
}  // namespace graft
