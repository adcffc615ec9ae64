#include "tensordict/update.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tensordict/copy.h"
#include "tensordict/like.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() { return TensorDict({{"a.w", at::full({2, 3}, 1.)}, {"b", at::full({2}, 2.)}}, {2}); }

TEST(UpdateTest, ReplacesAndAddsHandlesAndMergesParts) {
  TensorDict td = example();
  const TensorDict before = td;
  const TensorDict other({{"b", at::zeros({2, 5})}, {"a.v", at::ones({2})}}, {2});
  update(td, other);
  EXPECT_TRUE(td["b"].is_same(other["b"]));
  EXPECT_TRUE(td["a.v"].is_same(other["a.v"]));
  EXPECT_TRUE(td["a.w"].is_same(before["a.w"]));
  EXPECT_THAT(before, TensorDictEq(example()));
}

TEST(UpdateTest, InPlaceCopiesDataWhereThereIsALeaf) {
  TensorDict td = example();
  const TensorDict before = td;
  const TensorDict other({{"b", at::zeros({2}, at::kInt)}, {"c", at::ones({2})}}, {2});
  update(td, other, {.inplace = true, .clone = true});
  EXPECT_TRUE(td["b"].is_same(before["b"]));
  EXPECT_TRUE(at::equal(before["b"], at::zeros({2})));
  EXPECT_FALSE(td["c"].is_alias_of(other["c"]));
  EXPECT_TRUE(at::equal(td["c"], other["c"]));
}

TEST(UpdateTest, TakesSomeKeys) {
  TensorDict td = example();
  const TensorDict other({{"a.w", at::zeros({2})}, {"a.v", at::zeros({2})}, {"b", at::zeros({2})}}, {2});
  update(td, other, {.keys = {{"a"}}});
  EXPECT_EQ(td["a.w"].dim(), 1);
  EXPECT_EQ(td["b"][0].item<double>(), 2);
  EXPECT_THAT([&] { update(td, other, {.keys = {{"z"}}}); }, ThrowsWith<c10::IndexError>("\"z\""));
}

TEST(UpdateTest, ChangesNothingIfALeafDoesNotFit) {
  TensorDict td = example();
  const TensorDict parts({{"c", at::zeros({2})}, {"a", at::zeros({2})}, {"b.c", at::zeros({2})}}, {2});
  EXPECT_THAT([&] { update(td, parts); }, ThrowsWith<c10::ValueError>("\"a\"", "\"b.c\"", "Nothing is changed"));
  EXPECT_THAT(
      [&] {
        update(td, TensorDict({{"b", at::zeros({2})}}));
      },
      ThrowsWith<c10::ValueError>("batch size [], expected [2]"));
  const TensorDict long_leaf({{"c", at::zeros({2})}, {"b", at::zeros({2, 5})}}, {2});
  EXPECT_THAT([&] { update(td, long_leaf, {.inplace = true}); },
              ThrowsWith<c10::ValueError>("\"b\": shape [2, 5], expected one that broadcasts to [2]"));
  EXPECT_THAT(td, TensorDictEq(example()));
}

TEST(UpdateTest, GivesNewPartsTheirBatchDims) {
  TensorDict td = example();
  TensorDict other({{"n.x", at::zeros({2, 3})}, {"a.w", at::zeros({2, 3})}}, {2});
  other.set_batch_size("n", {2, 3});
  other.set_batch_size("a", {2, 3});
  update(td, other);
  EXPECT_EQ(td.batch_size("n"), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(td.batch_size("a"), (std::vector<int64_t>{2}));
}

TEST(UpdateTest, OfALockedTreeCopiesDataOnly) {
  TensorDict td = example().lock_();
  EXPECT_THAT([&] { update(td, example()); }, ThrowsWith<c10::Error>("locked"));
  update(td, zeros_like(td), {.inplace = true});
  EXPECT_EQ(td["b"].sum().item<double>(), 0);
  update_(td, example());
  EXPECT_THAT(td, TensorDictEq(example()));
}

TEST(UpdateInPlaceTest, BroadcastsAndConvertsData) {
  const TensorDict td = example();
  update_(td, TensorDict({{"b", at::full({}, 5)}, {"a.w", at::arange(3)}}));
  EXPECT_TRUE(at::equal(td["b"], at::full({2}, 5.)));
  EXPECT_TRUE(at::equal(td["a.w"], at::arange(3.).expand({2, 3})));
}

TEST(UpdateInPlaceTest, ListsEveryLeafThatCannotBeWritten) {
  const TensorDict td({{"shape", at::zeros({2})},
                       {"complex", at::zeros({2})},
                       {"trained", at::zeros({2}).requires_grad_()},
                       {"expanded", at::zeros({1}).expand({2})},
                       {"good", at::zeros({2})}});
  TensorDict values = detach(ones_like(td));
  values.set("shape", at::ones({3}));
  values.set("complex", at::ones({2}, at::kComplexFloat));
  EXPECT_THAT([&] { update_(td, values); },
              ThrowsWith<c10::ValueError>("\"shape\": shape [3]", "\"complex\": dtype",
                                          "\"trained\": ", "requires grad", "\"expanded\"", "Nothing is changed"));
  EXPECT_EQ(td["good"].sum().item<float>(), 0);
  EXPECT_THAT(
      [&] {
        update_(td, TensorDict({{"z", at::ones({2})}, {"good", at::ones({2})}}));
      },
      ThrowsWith<c10::IndexError>("\"z\": missing"));
  EXPECT_EQ(td["good"].sum().item<float>(), 0);
  const at::NoGradGuard no_grad;
  set_(td, "trained", at::ones({2}));
  EXPECT_EQ(td["trained"].sum().item<float>(), 2);
  EXPECT_THAT([&] { set_(td, "z", at::ones({2})); }, ThrowsWith<c10::IndexError>("\"z\""));
  EXPECT_THAT([&] { set_(td, "good", at::ones({3})); }, ThrowsWith<c10::ValueError>("\"good\": shape [3]"));
}

TEST(UpdateInPlaceTest, LetsGradientsThrough) {
  const at::Tensor source = at::ones({2}).requires_grad_();
  const TensorDict td({{"x", at::zeros({2})}});
  update_(td, TensorDict({{"x", source * 3}}));
  td["x"].sum().backward();
  EXPECT_TRUE(at::equal(source.grad(), at::full({2}, 3.)));
}

TEST(ReplaceTest, ReturnsACopyWithOtherHandles) {
  const TensorDict td = example().lock_();
  const TensorDict replaced = replace(td, TensorDict({{"b", at::zeros({2})}}, {2}));
  EXPECT_EQ(replaced["b"].sum().item<double>(), 0);
  EXPECT_TRUE(replaced["a.w"].is_same(td["a.w"]));
  EXPECT_FALSE(replaced.is_locked());
  EXPECT_THAT(td, TensorDictEq(example()));
  EXPECT_THAT([&] { replace(td, TensorDict({{"c", at::zeros({2})}}, {2})); }, ThrowsWith<c10::IndexError>("\"c\""));
}

TEST(PopTest, RemovesAndReturnsALeaf) {
  TensorDict td = example();
  EXPECT_EQ(pop(td, "b")[0].item<double>(), 2);
  EXPECT_FALSE(td.contains("b"));
  EXPECT_THAT([&] { pop(td, "b"); }, ThrowsWith<c10::IndexError>("\"b\""));
  EXPECT_EQ(pop(td, "b", at::full({}, 7)).item<int64_t>(), 7);
  EXPECT_EQ(pop(td, "a.w", at::full({}, 7)).dim(), 2);
  EXPECT_TRUE(td.empty());
}

TEST(SetDefaultTest, PutsALeafOnlyWhereThereIsNone) {
  TensorDict td = example();
  EXPECT_EQ(setdefault(td, "b", at::zeros({2}))[0].item<double>(), 2);
  EXPECT_EQ(setdefault(td, "c", at::zeros({2}))[0].item<double>(), 0);
  EXPECT_TRUE(td.contains("c"));
}

TEST(RenameKeyTest, MovesALeafOrAPart) {
  TensorDict td = example();
  td.set_batch_size("a", {2, 3});
  rename_key(td, "a", "c.d");
  EXPECT_TRUE(td.contains("c.d.w"));
  EXPECT_FALSE(td.contains("a"));
  EXPECT_EQ(td.batch_size("c.d"), (std::vector<int64_t>{2, 3}));
  rename_key(td, "b", "e");
  EXPECT_EQ(td["e"][0].item<double>(), 2);
  EXPECT_THAT([&] { rename_key(td, "e", "c"); }, ThrowsWith<c10::ValueError>("\"c\""));
  EXPECT_THAT([&] { rename_key(td, "z", "y"); }, ThrowsWith<c10::IndexError>("\"z\""));
  EXPECT_THAT([&] { rename_key(td, "e", "c.d.w.x"); }, ThrowsWith<c10::ValueError>("\"c.d.w.x\""));
  EXPECT_TRUE(td.contains("e"));
}

TEST(ClearTest, LeavesTheBatchSize) {
  TensorDict td = example();
  clear(td);
  EXPECT_TRUE(td.empty());
  EXPECT_EQ(td.batch_size(), std::vector<int64_t>{2});
  td.lock_();
  EXPECT_THAT([&] { clear(td); }, ThrowsWith<c10::Error>("locked"));
}

TEST(RenameKeyTest, PartsKeepTheirBatchDims) {
  TensorDict td({{"id", at::ones({4})}}, {4});
  td.set("p", TensorDict({{"x", at::ones({4, 3})}}, {4, 3}));
  rename_key(td, "p.x", "p.y");
  EXPECT_EQ(td.batch_size("p"), (std::vector<int64_t>{4, 3}));
  rename_key(td, "p", "q");
  EXPECT_EQ(td.batch_size("q"), (std::vector<int64_t>{4, 3}));
}

TEST(UpdateTest, ANewPartWithFewerBatchDimsThanTheOneAroundFollowsThat) {
  TensorDict td({{"id", at::ones({4})}}, {4});
  td.set("p", TensorDict({{"x", at::ones({4, 3, 2})}}, {4, 3, 2}));
  TensorDict other({{"id", at::ones({4})}}, {4});
  other.set("p.q", TensorDict({{"y", at::ones({4, 3, 2})}}, {4, 3}));
  update(td, other);
  EXPECT_EQ(td.batch_size("p.q"), (std::vector<int64_t>{4, 3, 2}));
}

TEST(UpdateInPlaceTest, ValuesMayLieInTheMemoryOfTheLeaves) {
  const at::Tensor base = at::arange(4.);
  const TensorDict td({{"a", base.slice(0, 0, 2)}, {"b", base.slice(0, 2, 4)}});
  update_(td, TensorDict({{"a", td["b"]}, {"b", td["a"]}}));
  EXPECT_TRUE(base.equal(at::tensor({2.f, 3.f, 0.f, 1.f})));
  const TensorDict shifted({{"a", base.slice(0, 0, 3)}});
  update_(shifted, TensorDict({{"a", base.slice(0, 1, 4)}}));
  EXPECT_TRUE(base.equal(at::tensor({3.f, 0.f, 1.f, 1.f})));
}

TEST(UpdateInPlaceTest, AValueOfATransformDoesNotLeaveIt) {
  const TensorDict outer({{"a", at::ones({2})}, {"b", at::ones({})}});
  const auto leak = [&](const at::Tensor& x) {
    update_(outer, TensorDict({{"a", at::zeros({2})}, {"b", x}}));
    return x;
  };
  EXPECT_THAT([&] { vmap(leak)(at::ones({3})); }, ThrowsWith<c10::ValueError>("update_", "\"b\"", "transform"));
  EXPECT_TRUE(outer["a"].equal(at::ones({2})));
}

}  // namespace
}  // namespace graft
