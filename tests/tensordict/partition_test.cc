#include "tensordict/partition.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() {
  return TensorDict(
      {{"a.w", at::full({2, 3}, 1)}, {"b", at::full({2}, 2)}, {"a.b", at::full({2, 3}, 3)}, {"ab.w", at::full({2}, 4)}},
      {2});
}

std::vector<std::string> paths(const TensorDict& tree) {
  std::vector<std::string> all;
  for (const auto& [path, leaf] : tree.leaves()) all.push_back(path);
  return all;
}

TEST(SelectTest, TakesLeavesAndPartsInTheOrderOfTheTree) {
  const TensorDict td = example();
  const TensorDict some = select(td, {"b", "a", "a.w"});
  EXPECT_THAT(paths(some), ElementsAre("a.w", "b", "a.b"));
  EXPECT_TRUE(some["a.b"].is_same(td["a.b"]));
  EXPECT_EQ(some.batch_size(), td.batch_size());
  EXPECT_THAT(paths(exclude(td, {"b", "a", "z"})), ElementsAre("ab.w"));
}

TEST(SelectTest, ListsEveryPathThatIsAbsent) {
  EXPECT_THAT(
      [] {
        select(example(), {"b", "z", "a.w.x"});
      },
      ThrowsWith<c10::IndexError>("select", "\"z\"", "\"a.w.x\""));
  EXPECT_THAT(paths(select(example(), {"b", "z"}, Absent::kIgnore)), ElementsAre("b"));
  EXPECT_THAT(paths(select(example(), {})), IsEmpty());
}

TEST(SelectTest, KeepsTheBatchDimsOfPartsAndNoLock) {
  TensorDict td = example();
  td.set_batch_size("a", {2, 3});
  td.lock_();
  const TensorDict some = select(td, {"a.b"});
  EXPECT_EQ(some.batch_size("a"), (std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(some.is_locked());
  EXPECT_TRUE(exclude(td, {"a"}).nested_sizes().empty());
}

TEST(SplitKeysTest, GivesEachLeafToTheFirstListThatNamesIt) {
  const std::vector<TensorDict> parts = split_keys(example(), {{"a.b"}, {"a", "b"}});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(paths(parts[0]), ElementsAre("a.b"));
  EXPECT_THAT(paths(parts[1]), ElementsAre("a.w", "b"));
  EXPECT_THAT(paths(parts[2]), ElementsAre("ab.w"));
}

TEST(PartitionTest, AsksForPathAndLeafAndMergeIsTheInverse) {
  const TensorDict td = example();
  const auto [weights, others] = partition(
      td, [](const std::string& path, const at::Tensor& leaf) { return path.back() == 'w' && leaf.dim() == 2; });
  EXPECT_THAT(paths(weights), ElementsAre("a.w"));
  EXPECT_THAT(paths(others), ElementsAre("b", "a.b", "ab.w"));
  EXPECT_THAT(paths(filter(td, [](const std::string&, const at::Tensor& leaf) { return leaf.dim() == 1; })),
              ElementsAre("b", "ab.w"));
  EXPECT_THAT(merge({weights, others}), TensorDictEq(td));
}

TEST(MergeTest, ListsEveryLeafThatClashes) {
  const TensorDict other({{"b", at::zeros({2})}, {"a", at::zeros({2})}, {"c", at::zeros({3})}});
  EXPECT_THAT(
      [&] {
        merge({example(), other});
      },
      ThrowsWith<c10::ValueError>("\"b\": another tree", "\"a\"", "\"c\": ", "[3]"));
  EXPECT_THAT([] { merge({}); }, ThrowsWith<c10::ValueError>("no trees"));
}

TEST(MergeTest, KeepsTheBatchDimsOfParts) {
  TensorDict td = example();
  td.set_batch_size("a", {2, 3});
  const TensorDict both = merge({select(td, {"b"}), select(td, {"a"})});
  EXPECT_EQ(both.batch_size("a"), (std::vector<int64_t>{2, 3}));
}

TEST(FlattenKeysTest, JoinsNamesAndUnflattenKeysPartsThem) {
  const TensorDict td = example();
  const TensorDict flat = flatten_keys(td, "/");
  EXPECT_THAT(paths(flat), ElementsAre("a/w", "b", "a/b", "ab/w"));
  EXPECT_THAT(unflatten_keys(flat, "/"), TensorDictEq(td));
}

TEST(FlattenKeysTest, NamesWhatWouldCollide) {
  const TensorDict clash(
      {{"a.b", at::zeros({})}, {"a/b", at::zeros({})}, {"c", at::zeros({})}, {"c/d", at::zeros({})}});
  EXPECT_THAT([&] { flatten_keys(clash, "/"); }, ThrowsWith<c10::ValueError>("\"a/b\": "));
  EXPECT_THAT([&] { unflatten_keys(clash, "/"); }, ThrowsWith<c10::ValueError>("\"a/b\": ", "\"c/d\": "));
  EXPECT_THAT([] { unflatten_keys(TensorDict({{"a//b", at::zeros({})}}), "/"); }, ThrowsWith<c10::ValueError>("a..b"));
  EXPECT_THAT([&] { flatten_keys(clash, "."); }, ThrowsWith<c10::ValueError>("without a dot"));
}

TEST(PartitionTest, UnflattenedKeysKeepTheBatchDimsOfParts) {
  TensorDict td({{"id", at::ones({4})}}, {4});
  td.set("p", TensorDict({{"x/y", at::ones({4, 3})}}, {4, 3}));
  EXPECT_EQ(unflatten_keys(td, "/").batch_size("p"), (std::vector<int64_t>{4, 3}));
}

TEST(PartitionTest, MergedPartsHaveTheLongestOfTheirBatchDims) {
  TensorDict shorter({{"id", at::ones({4})}}, {4}), longer(std::vector<int64_t>{4});
  shorter.set("p", TensorDict({{"x", at::ones({4, 3, 2})}}, {4, 3}));
  longer.set("p", TensorDict({{"y", at::ones({4, 3, 2})}}, {4, 3, 2}));
  EXPECT_EQ(merge({shorter, longer}).batch_size("p"), (std::vector<int64_t>{4, 3, 2}));
  EXPECT_EQ(merge({longer, shorter}).batch_size("p"), (std::vector<int64_t>{4, 3, 2}));
}

}  // namespace
}  // namespace graft
