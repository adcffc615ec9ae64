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
        td.set("next.obs", TensorDict({{"a", at::zeros({4})}}));
      },
      ThrowsWith<c10::ValueError>("\"next.obs\" is a leaf"));
  EXPECT_THAT(
      [&] {
        td.set("next", TensorDict({{"a", at::zeros({4})}, {"b", at::zeros({3})}}));
      },
      ThrowsWith<c10::ValueError>("\"next.b\""));
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

// --- Parts with batch dims of their own

/// Batch size [4], but [4, 3] in the part "n" and [4, 3, 2] in "n.deep".
TensorDict nested() {
  TensorDict td({{"a", at::zeros({4})}}, {4});
  TensorDict part({{"b", at::arange(24).view({4, 3, 2})}}, {4, 3});
  part.set("deep", TensorDict({{"c", at::zeros({4, 3, 2})}}, {4, 3, 2}));
  td.set("n", part);
  return td;
}

using Sizes = std::vector<int64_t>;

TEST(NestedBatchSizeTest, APartKeepsItsOwn) {
  const TensorDict td = nested();
  EXPECT_EQ(td.batch_size("n"), (Sizes{4, 3}));
  EXPECT_EQ(td.batch_size("n.deep"), (Sizes{4, 3, 2}));
  EXPECT_EQ(td.subtree("n").batch_size(), (Sizes{4, 3}));
  EXPECT_EQ(td.subtree("n").batch_size("deep"), (Sizes{4, 3, 2}));
  EXPECT_EQ(td.subtree("n.deep").batch_size(), (Sizes{4, 3, 2}));
  EXPECT_THAT([&] { td.batch_size("a"); }, ThrowsWith<c10::IndexError>("\"a\""));
}

TEST(NestedBatchSizeTest, BindsEveryLeafOfThePart) {
  TensorDict td = nested();
  EXPECT_THAT([&] { td.set("n.late", at::zeros({4, 5})); }, ThrowsWith<c10::ValueError>("\"n.late\"", "[4, 3]"));
  EXPECT_THAT([&] { td.set("n.deep.late", at::zeros({4, 3})); }, ThrowsWith<c10::ValueError>("[4, 3, 2]"));
  td.set("n.late", at::zeros({4, 3}));
  EXPECT_THAT([&] { td.map([](const at::Tensor& leaf) { return leaf.sum(-1, true); }); },
              ThrowsWith<c10::ValueError>("\"a\"", "\"n.deep.c\": shape [4, 3, 1], expected to start with [4, 3, 2]"));
}

TEST(NestedBatchSizeTest, EndsWithItsPart) {
  TensorDict td = nested();
  td.erase("n");
  td.set("n.b", at::zeros({4}));
  EXPECT_EQ(td.batch_size("n"), Sizes{4});
}

TEST(NestedBatchSizeTest, FollowsALongerOneOfTheTree) {
  TensorDict td = nested();
  td.erase("a");
  td.set_batch_size({4, 3});
  EXPECT_EQ(td.batch_size("n"), (Sizes{4, 3}));
  td.set_batch_size({});
  EXPECT_EQ(td.batch_size("n.deep"), (Sizes{4, 3, 2}));
}

TEST(NestedBatchSizeTest, ASetPartReplacesAndAShorterOneFollowsTheTree) {
  TensorDict td = nested();
  td.set("n", TensorDict({{"x", at::zeros({4, 9})}}));
  EXPECT_EQ(td.size(), 2u);
  EXPECT_EQ(td.batch_size("n"), Sizes{4});
}

TEST(NestedBatchSizeTest, CanBeSet) {
  TensorDict td = nested();
  td.set_batch_size("n", {4});
  EXPECT_EQ(td.batch_size("n"), Sizes{4});
  EXPECT_EQ(td.batch_size("n.deep"), (Sizes{4, 3, 2}));
  td.set_batch_size("n", {4, 3, 2});
  EXPECT_EQ(td.nested_sizes().parts().size(), 1u);
  EXPECT_THAT([&] { td.set_batch_size("n", {3}); }, ThrowsWith<c10::ValueError>("[3] for \"n\"", "[4]"));
  EXPECT_THAT([&] { td.set_batch_size("n", {4, 3, 2, 1}); }, ThrowsWith<c10::ValueError>("\"n.b\"", "\"n.deep.c\""));
  EXPECT_THAT([&] { td.set_batch_size("a", {4}); }, ThrowsWith<c10::IndexError>("\"a\""));
  EXPECT_EQ(td.batch_size("n"), (Sizes{4, 3, 2}));
}

// --- Locks

TEST(LockTest, FixesKeysHandlesAndBatchSizeButNotData) {
  TensorDict td = example().lock_();
  EXPECT_THAT([&] { td.set("obs", at::zeros({4})); }, ThrowsWith<c10::Error>("set: the tree is locked"));
  EXPECT_THAT([&] { td.set("part", example()); }, ThrowsWith<c10::Error>("set: the tree is locked"));
  EXPECT_THAT([&] { td.erase("obs"); }, ThrowsWith<c10::Error>("erase: the tree is locked"));
  EXPECT_THAT([&] { td.set_batch_size({}); }, ThrowsWith<c10::Error>("set_batch_size: the tree is locked"));
  EXPECT_THAT(td, TensorDictEq(example()));
  td["obs"].fill_(1);
  td.unlock_();
  td.erase("obs");
  EXPECT_EQ(td.size(), 1u);
}

TEST(LockTest, GoesWithPartsAndNewValuesButNotWithWhatIsMadeAnew) {
  const TensorDict td = example().lock_();
  EXPECT_TRUE(td.subtree("next").is_locked());
  EXPECT_TRUE(td.with_values(td.values()).is_locked());
  EXPECT_FALSE(td.map([](const at::Tensor& leaf) { return leaf; }).is_locked());
  EXPECT_FALSE(td.subset({0}).is_locked());
  EXPECT_FALSE(td.unlocked().is_locked());
  EXPECT_TRUE(td.is_locked());
}

TEST(TensorDictTest, MapKeepsKeysAndBatchSize) {
  const TensorDict td = example();
  const TensorDict half = td.map([](const at::Tensor& t) { return t * 0.5; });
  EXPECT_EQ(half.keys(), td.keys());
  EXPECT_EQ(half.batch_size(), td.batch_size());
  EXPECT_EQ(half["next.obs"][0][0].item<float>(), 0.5);
}

TEST(TensorDictTest, APartAroundKeepsItsBatchDimsWhenAllItHoldsIsReplaced) {
  TensorDict td({{"id", at::ones({2})}}, {2});
  td.set("around.inner", TensorDict({{"x", at::ones({2, 3, 4})}}, {2, 3}));
  td.set_batch_size("around", {2, 3});
  td.set("around.inner", TensorDict({{"y", at::zeros({2, 3, 5})}}, {2, 3, 5}));
  EXPECT_EQ(td.batch_size("around"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(td.batch_size("around.inner"), (std::vector<int64_t>{2, 3, 5}));
  td.set("around.inner", TensorDict());
  EXPECT_FALSE(td.contains("around"));
  EXPECT_TRUE(td.nested_sizes().empty());
}

TEST(TensorDictTest, ATreeWithoutBatchDimsBringsThoseOfItsParts) {
  TensorDict td({{"id", at::ones({4})}}, {4}), inner;
  inner.set("q", TensorDict({{"x", at::ones({4, 3})}}, {4, 3}));
  td.set("p", inner);
  EXPECT_EQ(td.batch_size("p.q"), (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(td.batch_size("p"), (std::vector<int64_t>{4}));
}

TEST(TensorDictTest, SettingATreeListsEveryLeafThatDoesNotFit) {
  TensorDict td({{"id", at::ones({4})}}, {4});
  EXPECT_THAT(
      [&] {
        td.set("p", TensorDict({{"x", at::ones({2})}, {"y", at::ones({5})}}));
      },
      ThrowsWith<c10::ValueError>("\"p.x\": shape [2]", "\"p.y\": shape [5]"));
  EXPECT_EQ(td.size(), 1);
}

TEST(TensorDictTest, TheBatchSizeOfAPartAgreesWithThoseWithin) {
  TensorDict td({{"p.q.x", at::ones({4, 3, 7})}}, {4});
  td.set_batch_size("p.q", {4, 3, 7});
  EXPECT_THAT([&] { td.set_batch_size("p", {4, 5}); }, ThrowsWith<c10::ValueError>("\"p.q\""));
  td.set_batch_size("p", {4, 3});
  EXPECT_EQ(td.batch_size("p"), (std::vector<int64_t>{4, 3}));
}

}  // namespace
}  // namespace graft
