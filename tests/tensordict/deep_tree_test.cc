// Trees of great depth: nothing here calls itself once for each level.
#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "tensordict/archive.h"
#include "tensordict/copy.h"
#include "tensordict/indexing.h"
#include "tensordict/join.h"
#include "tensordict/partition.h"
#include "tensordict/pointwise.h"
#include "tensordict/print.h"
#include "tensordict/summary.h"
#include "tests/testing/tensordict_matchers.h"

namespace graft {
namespace {

using testing::TensorDictEq;

constexpr int kDepth = 10000;

/// Returns a path of so many names.
std::string path_of(int names) {
  std::string path = "a";
  for (int i = 1; i < names; ++i) path += ".a";
  return path;
}

TensorDict deep() {
  return TensorDict({{path_of(kDepth), at::ones({2})}, {path_of(kDepth - 1) + ".b", at::zeros({2})}}, {2});
}

TEST(DeepTreeTest, IsReadWrittenAndComputedWith) {
  TensorDict td = deep();
  EXPECT_EQ((td + td)[path_of(kDepth)].sum().item<float>(), 4);
  EXPECT_EQ(index(stack({td, td}), {1}).size(), 2u);
  EXPECT_THAT(clone(td), TensorDictEq(td));
  const TensorDict middle = td.subtree(path_of(kDepth / 2));
  EXPECT_TRUE(middle.contains(path_of(kDepth / 2)));
  EXPECT_EQ(select(td, {path_of(7)}).size(), 2u);
  td.set_batch_size(path_of(5000), {2});
  td.set("short", at::zeros({2}));
  td.erase(path_of(3));
  EXPECT_EQ(td.size(), 1u);
}

TEST(DeepTreeTest, IsPrintedInFewLines) {
  std::ostringstream text;
  text << deep();
  const std::string printed = text.str();
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\n'), 3);
  EXPECT_THAT(summary(deep()), ::testing::HasSubstr("all"));
}

TEST(DeepTreeTest, GoesIntoAFile) {
  const std::string file = ::testing::TempDir() + "/deep.pt";
  save(deep(), file);
  EXPECT_THAT(load(file), TensorDictEq(deep()));
}

}  // namespace
}  // namespace graft
