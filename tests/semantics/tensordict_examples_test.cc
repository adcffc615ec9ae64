// Trees worked out by hand: small numbers, and what users of Python's tensordict have been surprised by.
#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensordict/indexing.h"
#include "tensordict/join.h"
#include "tensordict/partition.h"
#include "tensordict/shape.h"
#include "tensordict/tensordict.h"
#include "tensordict/update.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft::testing {
namespace {

using at::Tensor;
using at::indexing::Slice;
using Sizes = std::vector<int64_t>;

Tensor numbered(at::IntArrayRef sizes) { return at::arange(at::zeros(sizes).numel(), at::kFloat).view(sizes); }

// --- Batch sizes: leaves start with that of the tree, a part may have more of its own

TEST(BatchSizeExamples, LeavesAndPartsThatDoNotStartWithItAreRefused) {
  EXPECT_THROW(TensorDict({{"a", at::zeros({3, 2})}}, {2}), c10::ValueError);
  EXPECT_THROW(TensorDict({{"a", at::scalar_tensor(1)}}, {2}), c10::ValueError);
  TensorDict tree(Sizes{4});
  EXPECT_THROW(tree.set("n", TensorDict({{"b", at::zeros({3, 3})}}, {3})), c10::ValueError);
  EXPECT_TRUE(tree.empty());
}

TEST(BatchSizeExamples, AnIndexBeyondTheBatchIsRefused) {
  EXPECT_THROW(index(TensorDict({{"a", at::zeros({4})}}, {4}), {4}), c10::IndexError);
  EXPECT_THROW(index(TensorDict({{"a", at::zeros({4})}}), {0}), c10::IndexError);
}

TEST(BatchSizeExamples, APartKeepsItsBatchDimsThroughAnIndex) {
  TensorDict tree({{"a", at::zeros({4, 3})}}, {4});
  tree.set("n", TensorDict({{"b", numbered({4, 3, 2})}}, {4, 3}));
  const TensorDict row = index(tree, {1});
  EXPECT_EQ(row.batch_size(), Sizes{});
  EXPECT_EQ(row.batch_size("n"), Sizes{3});
  EXPECT_TRUE(at::equal(row["n.b"], at::arange(6, 12, at::kFloat).view({3, 2})));
  const TensorDict rows = index(tree, {Slice(1, 3)});
  EXPECT_EQ(rows.batch_size(), Sizes{2});
  EXPECT_EQ(rows.batch_size("n"), (Sizes{2, 3}));
  EXPECT_THROW(tree.set_batch_size({4, 2}), c10::ValueError);
  EXPECT_EQ(tree.batch_size(), Sizes{4});
}

TEST(BatchSizeExamples, ABufferMadeBeforehandTakesPartsWithTheirBatchDims) {
  TensorDict row({{"t", at::ones({4, 1})}}, {4});
  row.set("o", TensorDict({{"i", numbered({4, 3, 2})}}, {4, 3}));
  TensorDict buffer(Sizes{5, 4});
  index_put_(buffer, {0}, row);
  index_put_(buffer, {1}, row);
  EXPECT_EQ(buffer.batch_size("o"), (Sizes{5, 4, 3}));
  EXPECT_EQ(row.batch_size("o"), (Sizes{4, 3}));
  EXPECT_TRUE(at::equal(buffer["o.i"].flatten(1).sum(1), at::tensor({276.0f, 276.0f, 0.0f, 0.0f, 0.0f})));
}

TEST(BatchSizeExamples, ViewMaskAndExpandReachTheBatchDimsAlone) {
  const TensorDict viewed = view(TensorDict({{"a", numbered({4, 3})}}, {4}), {2, 2});
  EXPECT_EQ(viewed.batch_size(), (Sizes{2, 2}));
  EXPECT_TRUE(at::equal(index(viewed, {1, 0})["a"], at::tensor({6.0f, 7.0f, 8.0f})));
  const Tensor mask = at::tensor({1, 0, 1, 0}).to(at::kBool);
  const TensorDict masked = index(TensorDict({{"a", numbered({4, 2})}}, {4}), {mask});
  EXPECT_THAT(masked, TensorDictEq(TensorDict({{"a", at::tensor({0.0f, 1.0f, 4.0f, 5.0f}).view({2, 2})}}, {2})));
  EXPECT_EQ(expand(TensorDict({{"a", at::scalar_tensor(2)}}), {3})["a"].sizes(), Sizes{3});
}

// --- Dims of stack and cat count batch dims

TensorDict with_value(double value) {
  TensorDict tree({{"x", at::full({2, 3}, value)}}, {2});
  tree.set("n", TensorDict({{"y", at::full({2, 5}, value)}}, {2}));
  return tree;
}

TEST(StackExamples, DimsCountBatchDimsFromBothEnds) {
  const Tensor zero_one = at::tensor({0.0f, 1.0f});
  for (const auto& [dim, place] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 1}, {-1, 1}, {-2, 0}}) {
    const TensorDict stacked = stack({with_value(0), with_value(1)}, dim);
    EXPECT_EQ(stacked.batch_size(), (Sizes{2, 2}));
    EXPECT_EQ(stacked["n.y"].sizes(), (Sizes{2, 2, 5}));
    const Tensor expected = place == 0 ? zero_one.view({2, 1}).expand({2, 2}) : zero_one.expand({2, 2});
    EXPECT_TRUE(at::equal(stacked["x"], expected.unsqueeze(2).expand({2, 2, 3})));
  }
}

// Python stacks at dims of the leaves here, and takes them for batch dims.
TEST(StackExamples, DimsBeyondTheBatchAreRefused) {
  for (const int64_t dim : {2, -3}) EXPECT_THROW(stack({with_value(0), with_value(1)}, dim), c10::IndexError);
}

TEST(StackExamples, CatJoinsTheBatchDimThatMinusOneNames) {
  const TensorDict joined = cat({with_value(0), with_value(1)}, -1);
  EXPECT_EQ(joined.batch_size(), Sizes{4});
  EXPECT_TRUE(at::equal(joined["x"], at::tensor({0.0f, 0.0f, 1.0f, 1.0f}).view({4, 1}).expand({4, 3})));
}

TEST(StackExamples, TreesThatDifferAreRefusedByName) {
  using E = c10::ValueError;
  const auto leaf = [](const char* path, at::IntArrayRef sizes) { return TensorDict({{path, at::zeros(sizes)}}); };
  const TensorDict two({{"x", at::zeros({1})}, {"y", at::zeros({1})}});
  const TensorDict longer({{"x", at::zeros({3, 3})}, {"n.y", at::zeros({3, 5})}}, {3});
  EXPECT_THAT(([&] { stack({leaf("x", 1), leaf("y", 1)}); }), ThrowsWith<E>("\"x\": missing", "\"y\": unexpected"));
  EXPECT_THAT(([&] { stack({leaf("x", 1), two}); }), ThrowsWith<E>("\"y\": unexpected"));
  EXPECT_THAT(([&] { stack({leaf("x", 1), leaf("x", 2)}); }), ThrowsWith<E>("\"x\": shape [2], expected [1]"));
  EXPECT_THAT(([&] { stack({leaf("x", 1), leaf("x.q", 1)}); }), ThrowsWith<E>("\"x.q\": unexpected"));
  EXPECT_THAT(([&] { stack({with_value(0), longer}); }), ThrowsWith<E>("batch size [3], expected [2]"));
  EXPECT_THAT(([&] {
                stack({leaf("x", 1), leaf("x", 1).map([](const Tensor& t) { return t.to(at::kDouble); })});
              }),
              ThrowsWith<E>("\"x\": dtype double, expected float"));
  EXPECT_THROW(stack({}), E);
}

TEST(StackExamples, UnbindGivesTheOriginalsBack) {
  EXPECT_THAT(unbind(stack({with_value(0), with_value(1)}))[1], TensorDictEq(with_value(1)));
}

// --- Paths: names joined by dots, never both a leaf and a part

std::vector<std::string> paths(const TensorDict& tree) {
  std::vector<std::string> all;
  for (const auto& [path, leaf] : tree.leaves()) all.push_back(path);
  return all;
}

const Tensor kOne = at::scalar_tensor(1);
const Tensor kTwo = at::scalar_tensor(2);

TEST(PathExamples, TwoLeavesNeverShareAPath) {
  using E = c10::ValueError;
  EXPECT_THAT(([] { TensorDict({{"a.b", kOne}, {"a.b", kTwo}}); }), ThrowsWith<E>("\"a.b\""));
  EXPECT_THAT(([] { TensorDict({{"a", kOne}, {"a.b", kTwo}}); }), ThrowsWith<E>("\"a\" is a leaf"));
  EXPECT_THAT(([] { flatten_keys(TensorDict({{"a/b", kOne}, {"a.b", kTwo}}), "/"); }), ThrowsWith<E>("\"a.b\""));
  EXPECT_THAT(([] { unflatten_keys(TensorDict({{"a", kOne}, {"a/b", kTwo}}), "/"); }), ThrowsWith<E>("\"a/b\""));
}

TEST(PathExamples, FlattenAndUnflattenLoseNothing) {
  const TensorDict merged = unflatten_keys(TensorDict({{"c/a", kOne}, {"c.b", kTwo}}), "/");
  EXPECT_THAT(merged, TensorDictEq(TensorDict({{"c.a", kOne}, {"c.b", kTwo}})));
  const TensorDict deep({{"x.y.z", kOne}, {"x.w", kTwo}});
  EXPECT_THAT(paths(flatten_keys(deep, "/")), ::testing::ElementsAre("x/y/z", "x/w"));
  EXPECT_THAT(unflatten_keys(flatten_keys(deep, "/"), "/"), TensorDictEq(deep));
  const TensorDict net = unflatten_keys(TensorDict({{"net/0/weight", kOne}, {"net/10/weight", kTwo}}), "/");
  EXPECT_EQ(net["net.10.weight"].item<float>(), 2);
}

TEST(PathExamples, MalformedPathsAreRefusedAndNeverVanish) {
  for (const std::string path : {"", ".", ".x", "x.", "a..b"}) {
    EXPECT_THAT(([&] { TensorDict({{path, kOne}}); }), ThrowsWith<c10::ValueError>("not a path")) << path;
  }
}

TEST(PathExamples, WhatIsAbsentIsAnErrorThatSaysWhatThereIs) {
  using E = c10::IndexError;
  TensorDict tree({{"a", kOne}, {"p.b", kTwo}});
  EXPECT_THAT([&] { tree.at("z"); }, ThrowsWith<E>("\"z\"", "a, p.b"));
  EXPECT_THAT([&] { tree.at("p.z"); }, ThrowsWith<E>("\"p.z\""));
  EXPECT_THAT([&] { tree.at("a.b"); }, ThrowsWith<E>("\"a.b\""));
  EXPECT_THAT([&] { tree.set("a.b", kTwo); }, ThrowsWith<c10::ValueError>("\"a\" is a leaf"));
  EXPECT_THAT([&] { tree.erase("z"); }, ThrowsWith<E>("\"z\""));
  EXPECT_THAT([&] { set_(tree, "z", kOne); }, ThrowsWith<E>("\"z\""));
  EXPECT_THAT([&] { set_(tree, "a", at::zeros({3})); }, ThrowsWith<c10::ValueError>("\"a\": shape [3]"));
  EXPECT_TRUE(tree.contains("p") && tree.contains("p.b"));
  EXPECT_FALSE(tree.contains("p.x"));
}

TEST(PathExamples, SelectTakesWhatIsThereAndLeavesTheSourceAlone) {
  const TensorDict tree({{"a.b", kOne}, {"a.c", kTwo}});
  EXPECT_THAT(paths(select(tree, {"a.b", "r", "a.z"}, Absent::kIgnore)), ::testing::ElementsAre("a.b"));
  EXPECT_THAT(([&] { select(tree, {"r"}); }), ThrowsWith<c10::IndexError>("\"r\""));
  EXPECT_THAT(paths(exclude(tree, {"a.b"})), ::testing::ElementsAre("a.c"));
  EXPECT_EQ(tree.size(), 2u);
}

}  // namespace
}  // namespace graft::testing
