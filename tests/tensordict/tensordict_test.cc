#include "tensordict/tensordict.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() {
  return TensorDict({{"obs", at::zeros({4, 3})}, {"next.obs", at::ones({4, 3})}}, /*batch_size=*/{4});
}

TEST(TensorDictTest, Example) {
  TensorDict td = example();
  td.set("reward", at::ones({4}));
  std::vector<std::string> paths;
  for (const auto& [path, leaf] : td.leaves()) paths.push_back(path);
  EXPECT_THAT(paths, ::testing::ElementsAre("obs", "next.obs", "reward"));
  EXPECT_EQ(td["reward"].dim(), 1);
}

TEST(TensorDictTest, ListsEveryLeafThatDoesNotFit) {
  EXPECT_THAT(
      [] {
        TensorDict({{"a", at::zeros({2})}, {"b", at::Tensor()}, {"c", at::zeros({4})}}, {4});
      },
      ThrowsWith<c10::ValueError>("\"a\": shape [2], expected to start with [4]", "\"b\": an undefined"));
}

TEST(TensorDictTest, CopiesShareTensorsButNotKeys) {
  const TensorDict td = example();
  TensorDict copy = td;
  EXPECT_EQ(copy.keys(), td.keys());
  copy.set("extra", at::zeros({4}));
  copy["obs"].fill_(7);
  EXPECT_FALSE(td.contains("extra"));
  EXPECT_EQ(td["obs"][0][0].item<float>(), 7);
}

TEST(TensorDictTest, AnAbsentLeafIsAnIndexErrorThatNamesTheKeys) {
  const TensorDict td = example();
  EXPECT_THAT([&] { td.at("reward"); }, ThrowsWith<c10::IndexError>("\"reward\"", "obs, next.obs"));
  EXPECT_THAT([&] { td.at("next"); }, ThrowsWith<c10::IndexError>("subtree()"));
  EXPECT_EQ(td.find("reward"), nullptr);
}

TEST(TensorDictTest, SubtreeIsTheInverseOfSetTree) {
  TensorDict td(std::vector<int64_t>{4});
  td.set("outer", example());
  EXPECT_THAT(td.subtree("outer"), TensorDictEq(example()));
  EXPECT_THAT([&] { td.subtree("outer.obs"); }, ThrowsWith<c10::IndexError>("outer.obs"));
}

TEST(TensorDictTest, AFailedSetLeavesTheTreeAsItWas) {
  TensorDict td = example();
  EXPECT_THAT([&] { td.set("next", at::zeros({4})); }, ThrowsWith<c10::ValueError>("subtree"));
  EXPECT_THAT([&] { td.set("obs", at::zeros({3})); }, ThrowsWith<c10::ValueError>("\"obs\"", "[3]"));
  EXPECT_THAT(
      [&] {
        td.set("next", TensorDict({{"a", at::zeros({4})}, {"obs.b", at::zeros({4})}}));
      },
      ThrowsWith<c10::ValueError>("next.obs"));
  EXPECT_THAT(td, TensorDictEq(example()));
}

TEST(TensorDictTest, EraseTakesALeafOrASubtree) {
  TensorDict td = example();
  td.erase("next");
  EXPECT_EQ(td.size(), 1u);
  EXPECT_FALSE(td.contains("next"));
  EXPECT_THAT([&] { td.erase("next"); }, ThrowsWith<c10::IndexError>("next"));
}

TEST(TensorDictTest, SetBatchSizeChecksEveryLeaf) {
  TensorDict td = example();
  td.set_batch_size({4, 3});
  EXPECT_EQ(td.batch_dims(), 2);
  EXPECT_THAT([&] { td.set_batch_size({5}); }, ThrowsWith<c10::ValueError>("\"obs\"", "\"next.obs\""));
  EXPECT_EQ(td.batch_dims(), 2);
}

TEST(TensorDictTest, MapKeepsKeysAndBatchSize) {
  const TensorDict td = example();
  const TensorDict half = td.map([](const at::Tensor& t) { return t * 0.5; });
  EXPECT_EQ(half.keys(), td.keys());
  EXPECT_EQ(half.batch_size(), td.batch_size());
  EXPECT_EQ(half["next.obs"][0][0].item<float>(), 0.5);
}

}  // namespace
}  // namespace graft
