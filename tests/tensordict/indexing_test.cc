#include "tensordict/indexing.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/batch_trees.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using at::Tensor;
using at::indexing::Ellipsis;
using at::indexing::None;
using at::indexing::Slice;
using at::indexing::TensorIndex;
using testing::expect_elementwise;
using testing::TensorDictEq;
using testing::ThrowsWith;
using testing::trees_of_batch;
using Sizes = std::vector<int64_t>;
using IndexList = std::vector<TensorIndex>;

Tensor mask_of(const std::vector<int64_t>& values, at::IntArrayRef sizes) {
  return at::tensor(values).to(at::kBool).view(sizes);
}

/// Indices for batch dims [2, 3, 4].
std::vector<std::pair<std::string, IndexList>> index_lists() {
  const Tensor rows = at::tensor({1, 0, 1}, at::kLong);
  const Tensor columns = at::tensor({2, 0, 0}, at::kLong);
  const Tensor first_two = mask_of({1, 0, 1, 0, 0, 1}, {2, 3});
  return {
      {"an integer", {1}},
      {"a negative integer", {-1, -2}},
      {"integers for all", {1, 2, 3}},
      {"a slice", {Slice(1, None)}},
      {"slices", {Slice(), Slice(0, 3, 2), Slice(-2, None)}},
      {"an empty slice", {Slice(2, None)}},
      {"an ellipsis", {Ellipsis}},
      {"an ellipsis in front", {Ellipsis, 0}},
      {"an ellipsis between", {0, Ellipsis, Slice(0, 2)}},
      {"an ellipsis for nothing", {0, 1, 2, Ellipsis}},
      {"new dims", {None, 0, None, Slice(0, 2), None}},
      {"positions", {rows}},
      {"positions twice", {rows, columns}},
      {"positions apart", {rows, Slice(), columns}},
      {"positions that broadcast", {rows.unsqueeze(1), columns}},
      {"one position", {at::scalar_tensor(1, at::kLong)}},
      {"no positions", {at::zeros({0}, at::kLong)}},
      {"int32 positions", {rows.to(at::kInt)}},
      {"positions and an integer", {rows, 1}},
      {"a mask", {mask_of({0, 1}, {2})}},
      {"a mask of a later dim", {Slice(), mask_of({1, 0, 1}, {3})}},
      {"a mask after an ellipsis", {Ellipsis, mask_of({1, 0, 1, 1}, {4})}},
      {"a mask of two dims", {first_two}},
      {"a mask of all dims", {at::arange(24).view({2, 3, 4}).remainder(3) == 0}},
      {"a mask of nothing", {at::zeros({2, 3}, at::kBool)}},
      {"a mask and a position", {first_two, 1}},
      {"masks apart", {mask_of({1, 1}, {2}), Slice(), mask_of({1, 0, 1, 0}, {4})}},
      {"true", {true}},
      {"false", {false}},
      {"a mask without dims", {at::scalar_tensor(true, at::kBool)}},
  };
}

TEST(IndexTest, DoesToBatchDimsWhatLibTorchDoesToATensor) {
  for (const auto& [what, tree] : trees_of_batch({2, 3, 4})) {
    for (const auto& [name, indices] : index_lists()) {
      SCOPED_TRACE(name + " of a tree with " + what);
      expect_elementwise(index(tree, indices), tree, [&](const Tensor& t) { return t.index(indices); });
    }
  }
}

TEST(IndexTest, IndexesDimsOfSizeZeroAndNoDims) {
  for (const auto& [what, tree] : trees_of_batch({0, 3})) {
    SCOPED_TRACE(what);
    expect_elementwise(index(tree, {Slice(), 1}), tree, [](const Tensor& t) { return t.select(1, 1); });
    expect_elementwise(index(tree, {at::zeros({0}, at::kBool)}), tree, [](const Tensor& t) { return t; });
    expect_elementwise(index(tree, {}), tree, [](const Tensor& t) { return t; });
  }
  for (const auto& [what, tree] : trees_of_batch({})) {
    SCOPED_TRACE(what);
    expect_elementwise(index(tree, {None}), tree, [](const Tensor& t) { return t.unsqueeze(0); });
    expect_elementwise(index(tree, {Ellipsis}), tree, [](const Tensor& t) { return t; });
    expect_elementwise(index(tree, {}), tree, [](const Tensor& t) { return t; });
  }
}

TEST(IndexTest, ReturnsViewsWhereLibTorchDoesAndNoLock) {
  TensorDict tree({{"a", at::zeros({2, 3})}}, {2});
  tree.lock_();
  EXPECT_TRUE(index(tree, {1})["a"].is_alias_of(tree["a"]));
  EXPECT_TRUE(index(tree, {None, Slice(0, 1)})["a"].is_alias_of(tree["a"]));
  EXPECT_FALSE(index(tree, {at::tensor({1}, at::kLong)})["a"].is_alias_of(tree["a"]));
  EXPECT_FALSE(index(tree, {1}).is_locked());
}

TEST(IndexTest, StopsAtTheBatchDims) {
  const TensorDict tree({{"a", at::zeros({2, 3})}, {"b", at::zeros({2})}}, {2});
  EXPECT_THAT([&] { index(tree, {0, 0}); }, ThrowsWith<c10::IndexError>("2 dims", "1 batch dims"));
  EXPECT_THAT([&] { index(tree, {at::ones({2, 3}, at::kBool)}); }, ThrowsWith<c10::IndexError>("2 dims"));
  EXPECT_THAT([&] { index(tree, {Ellipsis, Ellipsis}); }, ThrowsWith<c10::IndexError>("2 ellipses"));
  EXPECT_THAT([] { index(TensorDict({{"a", at::zeros({4})}}), {0}); }, ThrowsWith<c10::IndexError>("0 batch dims"));
  EXPECT_THROW(index(tree, {2}), c10::IndexError);
  EXPECT_THROW(index(TensorDict(Sizes{2}), {-3}), c10::IndexError);
  EXPECT_THROW(index(tree, {at::tensor({2}, at::kLong)}), c10::IndexError);
  EXPECT_THROW(index(tree, {at::tensor({0.5})}), c10::IndexError);
  EXPECT_THAT(
      [&] {
        index(tree, {mask_of({1, 0, 1}, {3})});
      },
      ThrowsWith<c10::ValueError>("index: a mask of shape [3] at batch dim 0 of the batch size [2]"));
  EXPECT_THAT(
      [] {
        index(TensorDict(Sizes{2, 3}), {0, mask_of({1, 0}, {2})});
      },
      ThrowsWith<c10::ValueError>("shape [2] at batch dim 1 of the batch size [2, 3]"));
}

TEST(IndexTest, WorksInsideVmap) {
  const TensorDict tree({{"a", at::arange(12).view({2, 3, 2})}}, {2});
  const auto picked = [](const TensorDict& each, const Tensor& position) {
    return index(each, {position})["a"] + index(each, {Slice(0, 1)})["a"][0];
  };
  const TensorDict inner({{"a", tree["a"]}}, {2, 3});
  const Tensor positions = at::tensor({2, 0}, at::kLong);
  const Tensor got = vmap(picked)(inner, positions);
  for (int64_t i = 0; i < 2; ++i) {
    const Tensor leaf = tree["a"][i];
    EXPECT_TRUE(at::equal(got[i], leaf[positions[i].item<int64_t>()] + leaf[0]));
  }
}

// --- index_put_

/// Returns what `tree` should hold after `value(path)` is written at `indices`.
void expect_written(const TensorDict& got, const TensorDict& before, const IndexList& indices,
                    const std::function<Tensor(const std::string&)>& value) {
  ASSERT_EQ(got.size(), before.size());
  EXPECT_TRUE(got.nested_sizes() == before.nested_sizes());
  for (const auto& [path, leaf] : before.leaves()) {
    SCOPED_TRACE(path);
    Tensor expected = leaf.clone();
    // Dims of leaves come first, so that LibTorch's index reaches the batch dims: no index takes all dims of a leaf.
    IndexList all = indices;
    all.push_back(Ellipsis);
    expected.index_put_(all, value(path));
    EXPECT_TRUE(at::equal(got[path], expected)) << got[path] << expected;
  }
}

TEST(IndexPutTest, WritesATreeANumberAndATensorWhereIndexReads) {
  for (const auto& [what, original] : trees_of_batch({2, 3, 4})) {
    for (const auto& [name, indices] : index_lists()) {
      if (std::any_of(indices.begin(), indices.end(), [](const TensorIndex& i) { return i.is_ellipsis(); })) continue;
      SCOPED_TRACE(name + " of a tree with " + what);
      // Another number for each element, but where a position is given twice: the order of writes is then not said.
      const bool has_twins = name.starts_with("positions") || name == "int32 positions";
      const auto fresh = [&](const Tensor& leaf) {
        return has_twins ? at::full_like(leaf, -3) : -1 - at::arange(leaf.numel()).view(leaf.sizes()).to(leaf.dtype());
      };
      const TensorDict source = index(original, indices).map(fresh);
      TensorDict tree = original.map([](const Tensor& leaf) { return leaf.clone(); });
      const TensorDict handles = tree;
      EXPECT_EQ(&index_put_(tree, indices, source), &tree);
      expect_written(tree, original, indices, [&](const std::string& path) { return source[path]; });
      for (const auto& [path, leaf] : handles.leaves()) EXPECT_TRUE(leaf.is_same(tree[path]));

      index_put_(tree, indices, -7);
      expect_written(tree, original, indices,
                     [&](const std::string& path) { return at::scalar_tensor(-7).to(tree[path].dtype()); });
      index_put_(tree, indices, at::scalar_tensor(8.0));
      expect_written(tree, original, indices,
                     [&](const std::string& path) { return at::scalar_tensor(8).to(tree[path].dtype()); });
    }
  }
}

TEST(IndexPutTest, AnEllipsisIsForTheBatchDimsAlone) {
  TensorDict tree({{"a", at::zeros({2, 3, 4})}, {"b", at::zeros({2, 3})}}, {2, 3});
  index_put_(tree, {Ellipsis, 1}, TensorDict({{"a", at::ones({2, 4})}, {"b", at::full({2}, 5)}}, {2}));
  EXPECT_TRUE(at::equal(tree["a"], at::tensor({0, 1, 0}).view({3, 1}).expand({2, 3, 4}).to(at::kFloat)));
  EXPECT_TRUE(at::equal(tree["b"], at::tensor({0.0f, 5.0f, 0.0f}).expand({2, 3})));
  TensorDict scalar({{"a", at::zeros({3})}});
  index_put_(scalar, {Ellipsis}, 2);
  index_put_(scalar, {}, TensorDict({{"a", at::full({1}, 4)}}));
  EXPECT_TRUE(at::equal(scalar["a"], at::full({3}, 4.0f)));
}

TEST(IndexPutTest, LeavesThatTheTreeLacksAreMadeOfZeros) {
  TensorDict tree({{"a", at::ones({2, 3})}}, {2});
  const TensorDict source(
      {{"n.b", at::tensor({4, 5}, at::kLong)}, {"a", at::full({3}, 2)}, {"c", at::scalar_tensor(true, at::kBool)}});
  index_put_(tree, {1}, source);
  const TensorDict expected({{"a", at::tensor({1.0f, 2.0f}).view({2, 1}).expand({2, 3})},
                             {"n.b", at::tensor({0, 0, 4, 5}, at::kLong).view({2, 2})},
                             {"c", at::tensor({0, 1}).to(at::kBool)}},
                            {2});
  EXPECT_THAT(tree, TensorDictEq(expected));
  EXPECT_EQ(tree.keys()->path(0), "a");

  TensorDict masked(Sizes{2, 2});
  index_put_(masked, {mask_of({1, 0, 0, 1}, {2, 2})}, TensorDict({{"x", at::tensor({3.0f, 4.0f})}}, {2}));
  EXPECT_TRUE(at::equal(masked["x"], at::tensor({3.0f, 0.0f, 0.0f, 4.0f}).view({2, 2})));
}

TEST(IndexPutTest, LeavesThatOnlyTheTreeHasStay) {
  TensorDict tree({{"a", at::zeros({2})}, {"b", at::zeros({2})}}, {2});
  index_put_(tree, {0}, TensorDict({{"a", at::scalar_tensor(1.0f)}}));
  EXPECT_TRUE(at::equal(tree["a"], at::tensor({1.0f, 0.0f})));
  EXPECT_TRUE(at::equal(tree["b"], at::zeros({2})));
}

TEST(IndexPutTest, NewPartsHaveTheBatchDimsOfTheSource) {
  TensorDict source({{"t", at::ones({4, 1})}}, {4});
  TensorDict part({{"i", at::ones({4, 3, 2})}}, {4, 3});
  part.set("deep.er", TensorDict({{"j", at::ones({4, 3, 5, 6})}}, {4, 3, 5}));
  source.set("o", part);
  TensorDict buffer(Sizes{5, 4});
  index_put_(buffer, {0}, source);
  index_put_(buffer, {2}, source);
  EXPECT_EQ(buffer.batch_size("o"), (Sizes{5, 4, 3}));
  EXPECT_EQ(buffer.batch_size("o.deep.er"), (Sizes{5, 4, 3, 5}));
  EXPECT_TRUE(buffer.nested_sizes() == source.nested_sizes());
  EXPECT_TRUE(at::equal(buffer["o.deep.er.j"].sum({1, 2, 3, 4}), at::tensor({360.0f, 0.0f, 360.0f, 0.0f, 0.0f})));
  EXPECT_EQ(source.batch_size("o"), (Sizes{4, 3}));
}

TEST(IndexPutTest, PartsThatAreThereKeepTheirBatchDims) {
  TensorDict shallow({{"o.i", at::zeros({5, 4, 3, 2})}}, {5, 4});
  TensorDict deep = shallow;
  deep.set("o", TensorDict({{"i", at::zeros({5, 4, 3, 2})}}, {5, 4, 3}));
  const TensorDict part({{"i", at::ones({4, 3, 2})}, {"j", at::ones({4, 3})}}, {4, 3});
  TensorDict deep_source(Sizes{4});
  deep_source.set("o", part);
  index_put_(shallow, {0}, deep_source);
  EXPECT_EQ(shallow.batch_size("o"), (Sizes{5, 4}));
  EXPECT_EQ(shallow["o.j"].sizes(), (Sizes{5, 4, 3}));
  const TensorDict shallow_source({{"o.j", at::ones({4, 3, 1})}, {"o.p.q", at::ones({4, 3})}}, {4});
  index_put_(deep, {0}, shallow_source);
  EXPECT_EQ(deep.batch_size("o"), (Sizes{5, 4, 3}));
  EXPECT_EQ(deep["o.j"].sizes(), (Sizes{5, 4, 3, 1}));
  EXPECT_THAT(([&] {
                index_put_(deep, {0}, TensorDict({{"o.k", at::ones({4, 7})}}, {4}));
              }),
              ThrowsWith<c10::ValueError>("o.k", "[5, 4, 7]", "[5, 4, 3]"));
  EXPECT_FALSE(deep.contains("o.k"));
}

TEST(IndexPutTest, ALockedTreeTakesValuesButNoLeaves) {
  TensorDict tree({{"a", at::zeros({2})}}, {2});
  tree.lock_();
  index_put_(tree, {0}, TensorDict({{"a", at::scalar_tensor(1.0f)}}));
  index_put_(tree, {1}, 2);
  EXPECT_TRUE(at::equal(tree["a"], at::tensor({1.0f, 2.0f})));
  EXPECT_TRUE(tree.is_locked());
  const TensorDict more(
      {{"a", at::scalar_tensor(9.0f)}, {"b", at::scalar_tensor(1.0f)}, {"c.d", at::scalar_tensor(1.0f)}});
  EXPECT_THAT([&] { index_put_(tree, {0}, more); }, ThrowsWith<c10::ValueError>("locked", "\"b\"", "\"c.d\""));
  EXPECT_TRUE(at::equal(tree["a"], at::tensor({1.0f, 2.0f})));
  EXPECT_EQ(tree.size(), 1u);
}

TEST(IndexPutTest, DtypesAreConverted) {
  TensorDict tree({{"a", at::zeros({3}, at::kLong)}}, {3});
  index_put_(tree, {0}, TensorDict({{"a", at::scalar_tensor(1.7)}}));
  index_put_(tree, {at::tensor({1, 2}, at::kLong)}, TensorDict({{"a", at::tensor({2.5, 3.5})}}, {2}));
  EXPECT_TRUE(at::equal(tree["a"], at::tensor({1, 2, 3}, at::kLong)));
}

TEST(IndexPutTest, GradientsFlowToTheSource) {
  TensorDict tree({{"a", at::zeros({3})}}, {3});
  const TensorDict source({{"a", at::ones({}).requires_grad_()}, {"b", at::ones({2}).requires_grad_()}});
  index_put_(tree, {1}, source);
  (2 * tree["a"].sum() + 3 * tree["b"].sum()).backward();
  EXPECT_EQ(source["a"].grad().item<float>(), 2);
  EXPECT_TRUE(at::equal(source["b"].grad(), at::full({2}, 3.0f)));
}

TEST(IndexPutTest, WorksInsideVmap) {
  const auto written = [](const Tensor& x) {
    TensorDict tree(Sizes{3});
    index_put_(tree, {1}, TensorDict({{"a", x}}));
    index_put_(tree, {2}, TensorDict({{"a", 2 * x}}));
    return tree["a"];
  };
  const Tensor x = at::tensor({1.0f, 5.0f});
  EXPECT_TRUE(at::equal(vmap(written)(x), at::stack({at::zeros({2}), x, 2 * x}, 1)));
}

TEST(IndexPutTest, ListsAllThatDoesNotFitAndChangesNothing) {
  const Tensor trained = at::zeros({2}).requires_grad_();
  TensorDict tree({{"a", at::zeros({2, 3})}, {"b", at::zeros({1}).expand({2})}, {"c", trained}, {"d", at::zeros({2})}},
                  {2});
  const TensorDict before = tree.map([](const Tensor& leaf) { return leaf.detach().clone(); });
  const TensorDict source(
      {{"d", at::ones({})}, {"a", at::ones({4})}, {"b", at::ones({})}, {"c", at::ones({})}, {"e", at::ones({})}});
  EXPECT_THAT([&] { index_put_(tree, {0}, source); },
              ThrowsWith<c10::ValueError>("index_put_", "\"a\": shape [4], expected one that broadcasts to [3]",
                                          "\"b\": the leaf there is expanded",
                                          "\"c\": the leaf there is guarded by autograd", "Nothing is changed"));
  EXPECT_THAT([&] { index_put_(tree, {0}, 1); }, ThrowsWith<c10::ValueError>("\"b\"", "\"c\""));
  EXPECT_THAT([&] { index_put_(tree, {Slice()}, at::ones({2})); },
              ThrowsWith<c10::ValueError>("\"a\": shape [2]", "[2, 3]", "\"b\"", "\"c\""));
  EXPECT_THAT(tree, TensorDictEq(before));
}

TEST(IndexPutTest, TheSourceHasTheBatchSizeOfTheIndexedElements) {
  TensorDict tree({{"a", at::zeros({2, 3})}}, {2});
  const auto put = [&](const IndexList& indices, const TensorDict& source) {
    return [&] { index_put_(tree, indices, source); };
  };
  EXPECT_THAT(put({0}, TensorDict({{"a", at::ones({3})}}, {3})),
              ThrowsWith<c10::ValueError>("the source has the batch size [3], expected []"));
  EXPECT_THAT(put({Slice()}, TensorDict({{"a", at::ones({3})}})), ThrowsWith<c10::ValueError>("[], expected [2]"));
  EXPECT_THAT(put({Slice()}, TensorDict({{"a", at::ones({1, 3})}}, {1})),
              ThrowsWith<c10::ValueError>("[1], expected [2]"));
  EXPECT_THAT(put({0}, TensorDict({{"a.q.r", at::ones({})}, {"c", at::ones({})}})),
              ThrowsWith<c10::ValueError>("\"a.q.r\": below \"a\", which is a leaf"));
  EXPECT_THAT(put({0, 0}, TensorDict()), ThrowsWith<c10::IndexError>("index_put_: indices for 2 dims"));
  EXPECT_THROW(index_put_(tree, {2}, 1), c10::IndexError);
  EXPECT_THAT(
      [&] {
        index_put_(tree, {mask_of({1, 0, 0}, {3})}, 1);
      },
      ThrowsWith<c10::ValueError>("index_put_: a mask"));
  EXPECT_TRUE(at::equal(tree["a"], at::zeros({2, 3})));
  EXPECT_EQ(tree.size(), 1u);
  TensorDict nested({{"a.q", at::zeros({2})}}, {2});
  EXPECT_THAT(
      [&] {
        index_put_(nested, {0}, TensorDict({{"a", at::ones({})}}));
      },
      ThrowsWith<c10::ValueError>("\"a\": a part of the tree, not a leaf"));
}

// --- Elements by position and by mask

TEST(SelectTest, DoesToBatchDimsWhatLibTorchDoesToATensor) {
  const Tensor positions = at::tensor({2, 0, 2, 1}, at::kLong);
  const Tensor grid = at::tensor({1, 0, 0, 1}, at::kLong).view({2, 2});
  const Tensor mask = mask_of({1, 0, 1, 0, 0, 1}, {2, 3});
  const Tensor rows = mask_of({0, 1}, {2});
  for (const auto& [what, tree] : trees_of_batch({2, 3})) {
    SCOPED_TRACE(what);
    expect_elementwise(narrow(tree, 1, 1, 2), tree, [&](const Tensor& t) { return t.narrow(1, 1, 2); });
    expect_elementwise(narrow(tree, -1, -2, 1), tree, [&](const Tensor& t) { return t.narrow(-1, -2, 1); });
    expect_elementwise(narrow(tree, 0, 2, 0), tree, [&](const Tensor& t) { return t.narrow(0, 2, 0); });
    expect_elementwise(index_select(tree, 1, positions), tree,
                       [&](const Tensor& t) { return t.index_select(1, positions); });
    expect_elementwise(index_select(tree, -1, at::scalar_tensor(1, at::kLong)), tree,
                       [&](const Tensor& t) { return t.narrow(1, 1, 1); });
    expect_elementwise(gather(tree, 1, grid), tree, [&](const Tensor& t) { return t.gather(1, grid); });
    expect_elementwise(gather(tree, -2, grid), tree, [&](const Tensor& t) { return t.gather(0, grid); });
    expect_elementwise(masked_select(tree, mask), tree, [&](const Tensor& t) { return t.masked_select(mask); });
    expect_elementwise(masked_select(tree, rows), tree, [&](const Tensor& t) { return t.index({rows}); });
    expect_elementwise(masked_fill(tree, mask, 7), tree, [&](const Tensor& t) { return t.masked_fill(mask, 7); });
    expect_elementwise(masked_fill(tree, rows, 7), tree,
                       [&](const Tensor& t) { return t.masked_fill(rows.unsqueeze(1), 7); });
    const TensorDict other = tree.map([](const Tensor& value) { return value + 100; });
    expect_elementwise(where(mask, tree, other), tree, [&](const Tensor& t) { return at::where(mask, t, t + 100); });
    expect_elementwise(where(rows, tree, other), tree,
                       [&](const Tensor& t) { return at::where(rows.unsqueeze(1), t, t + 100); });
    expect_elementwise(where(mask, tree, 3), tree, [&](const Tensor& t) { return at::where(mask, t, 3); });
  }
}

TEST(SelectTest, BatchDimsOfSizeZeroAndNoDimsAreChosenFromToo) {
  for (const auto& [what, tree] : trees_of_batch({0, 3})) {
    SCOPED_TRACE(what);
    const Tensor mask = at::zeros({0, 3}, at::kBool);
    expect_elementwise(masked_select(tree, mask), tree, [&](const Tensor& t) { return t.masked_select(mask); });
    expect_elementwise(masked_fill(tree, mask, 1), tree, [&](const Tensor& t) { return t; });
    expect_elementwise(narrow(tree, 1, 0, 2), tree, [&](const Tensor& t) { return t.narrow(1, 0, 2); });
  }
  for (const auto& [what, tree] : trees_of_batch({})) {
    SCOPED_TRACE(what);
    const Tensor yes = at::scalar_tensor(true, at::kBool);
    expect_elementwise(masked_select(tree, yes), tree, [&](const Tensor& t) { return t.unsqueeze(0); });
    expect_elementwise(where(at::scalar_tensor(false, at::kBool), tree, 5), tree,
                       [&](const Tensor& t) { return at::full_like(t, 5); });
  }
}

TEST(SelectTest, OnlyNarrowKeepsTheLockAndViews) {
  TensorDict tree({{"a", at::zeros({2, 3})}}, {2});
  tree.lock_();
  EXPECT_TRUE(narrow(tree, 0, 0, 1).is_locked());
  EXPECT_TRUE(narrow(tree, 0, 0, 1)["a"].is_alias_of(tree["a"]));
  const Tensor zero = at::zeros({1}, at::kLong);
  const Tensor mask = at::ones({2}, at::kBool);
  for (const TensorDict& result : {index_select(tree, 0, zero), gather(tree, 0, zero), masked_select(tree, mask),
                                   masked_fill(tree, mask, 1), where(mask, tree, tree), where(mask, tree, 1)}) {
    EXPECT_FALSE(result.is_locked());
    EXPECT_FALSE(result["a"].is_alias_of(tree["a"]));
  }
}

TEST(SelectTest, WherePromotesDtypesAndAlignsByPath) {
  const TensorDict tree({{"a", at::zeros({2})}, {"b", at::zeros({2, 2})}}, {2});
  const TensorDict other({{"b", at::ones({2, 2}, at::kDouble)}, {"a", at::full({2}, 4)}}, {2});
  const TensorDict got = where(mask_of({1, 0}, {2}), tree, other);
  EXPECT_TRUE(at::equal(got["a"], at::tensor({0.0f, 4.0f})));
  EXPECT_TRUE(at::equal(got["b"], at::tensor({0.0, 0.0, 1.0, 1.0}).view({2, 2})));
}

TEST(SelectTest, SaysWhatDoesNotFit) {
  using E = c10::ValueError;
  const TensorDict tree({{"a", at::zeros({2, 3, 4})}, {"b.c", at::zeros({2, 3})}}, {2, 3});
  const Tensor zero = at::zeros({1}, at::kLong);
  EXPECT_THAT([&] { narrow(tree, 2, 0, 1); }, ThrowsWith<c10::IndexError>("narrow(dim=2)"));
  EXPECT_THAT([&] { narrow(tree, 1, 2, 2); }, ThrowsWith<c10::IndexError>("no 2 elements from 2 on", "size 3"));
  EXPECT_THAT([&] { narrow(tree, 1, -4, 1); }, ThrowsWith<c10::IndexError>("no 1 elements from -4 on"));
  EXPECT_THAT([&] { narrow(tree, 1, 0, -1); }, ThrowsWith<c10::IndexError>("no -1 elements"));
  EXPECT_THAT([&] { index_select(tree, 2, zero); }, ThrowsWith<c10::IndexError>("index_select(dim=2)"));
  EXPECT_THAT([&] { index_select(tree, 0, at::zeros({1, 1}, at::kLong)); }, ThrowsWith<E>("shape [1, 1]"));
  EXPECT_THAT([&] { gather(tree, 2, zero); }, ThrowsWith<c10::IndexError>("gather(dim=2)"));
  EXPECT_THAT([&] { gather(tree, 0, zero); }, ThrowsWith<E>("gather: an index of shape [1]", "[2, 3]"));
  EXPECT_THAT([&] { gather(tree, 0, at::zeros({9, 4}, at::kLong)); }, ThrowsWith<E>("[9, 4]", "except in dim 0"));
  EXPECT_THAT([&] { masked_select(tree, at::ones({3}, at::kBool)); },
              ThrowsWith<E>("masked_select: a mask of shape [3]"));
  EXPECT_THAT([&] { masked_select(tree, zero); }, ThrowsWith<E>("masked_select: a mask of dtype"));
  EXPECT_THAT([&] { masked_fill(tree, at::ones({2, 1}, at::kBool), 1); }, ThrowsWith<E>("masked_fill", "[2, 1]"));
  EXPECT_THAT([&] { masked_fill(tree, zero, 1); }, ThrowsWith<E>("masked_fill: a mask of dtype"));
  EXPECT_THAT(
      [&] {
        where(at::ones({2, 3, 4}, at::kBool), tree, 1);
      },
      ThrowsWith<E>("where: a mask of shape [2, 3, 4]"));
  const Tensor mask = at::ones({2}, at::kBool);
  const TensorDict other({{"a", at::zeros({2, 3})}, {"d", at::zeros({2, 3})}}, {2, 3});
  EXPECT_THAT([&] { where(mask, tree, other); }, ThrowsWith<E>("where", "\"a\": shape [2, 3], expected [2, 3, 4]",
                                                               "\"b.c\": missing", "\"d\": unexpected"));
  EXPECT_THAT([&] { where(mask, tree, TensorDict(Sizes{2})); }, ThrowsWith<E>("batch size [2], expected [2, 3]"));
}

TEST(IndexPutTest, NothingIsWrittenIfOneDtypeDoesNotHaveTheNumber) {
  TensorDict tree({{"a", at::ones({2})}, {"b", at::ones({2}, at::kByte)}}, {2});
  EXPECT_THAT([&] { index_put_(tree, {0}, 300); }, ThrowsWith<c10::ValueError>("index_put_", "\"b\": the number 300"));
  EXPECT_TRUE(at::equal(tree["a"], at::ones({2})));
}

}  // namespace
}  // namespace graft
