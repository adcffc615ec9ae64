#include "tensordict/like.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

TensorDict example() { return TensorDict({{"a", at::full({2}, 3.)}, {"b", at::full({2}, 3, at::kLong)}}, {2}); }

/// Two leaves of floats, the first under two names.
TensorDict tied() {
  const at::Tensor w = at::arange(3.);
  return TensorDict({{"a", w}, {"b", at::ones({2})}, {"n.c", w}});
}

TEST(LikeTest, FilledTreesKeepShapesAndDtypes) {
  EXPECT_THAT(full_like(example(), 3), TensorDictEq(example()));
  EXPECT_EQ(zeros_like(example())["b"].scalar_type(), at::kLong);
  EXPECT_EQ(ones_like(example())["b"].sum().item<int64_t>(), 2);
  EXPECT_EQ(empty_like(example())["b"].sizes(), Sizes{2});
  EXPECT_FALSE(zeros_like(tied())["a"].is_same(zeros_like(tied())["n.c"]));
}

TEST(LikeTest, RandomTreesAreThoseOfTheGenerator) {
  const TensorDict td = tied();
  at::manual_seed(3);
  const TensorDict uniform = rand_like(td), normal = randn_like(td);
  at::manual_seed(3);
  for (const auto& [path, leaf] : td.leaves()) EXPECT_TRUE(uniform[path].equal(at::rand_like(leaf))) << path;
  for (const auto& [path, leaf] : td.leaves()) EXPECT_TRUE(normal[path].equal(at::randn_like(leaf))) << path;
  EXPECT_THAT([&] { rand_like(example()); }, ThrowsWith<c10::ValueError>("rand_like", "\"b\": dtype long"));
  EXPECT_THAT([&] { randn_like(example()); }, ThrowsWith<c10::ValueError>("randn_like", "\"b\": dtype long"));
}

TEST(LikeTest, NewTreesHaveOtherBatchDims) {
  TensorDict td({{"a", at::ones({2, 3})}, {"b", at::ones({2}, at::kLong)}}, {2});
  td.set("part", TensorDict({{"x", at::ones({2, 4, 5})}}, {2, 4}));
  const TensorDict zeros = new_zeros(td, {7, 6});
  EXPECT_EQ(zeros.batch_size(), (Sizes{7, 6}));
  EXPECT_EQ(zeros.batch_size("part"), (Sizes{7, 6, 4}));
  EXPECT_TRUE(zeros["a"].equal(at::zeros({7, 6, 3})));
  EXPECT_TRUE(zeros["b"].equal(at::zeros({7, 6}, at::kLong)));
  EXPECT_TRUE(new_ones(td, {})["part.x"].equal(at::ones({4, 5})));
  EXPECT_TRUE(new_full(td, {1}, 9)["b"].equal(at::full({1}, 9, at::kLong)));
  EXPECT_EQ(new_empty(td, {0})["a"].sizes(), (Sizes{0, 3}));
}

TEST(LikeTest, LeavesAreFilledInPlace) {
  const TensorDict td = example();
  EXPECT_EQ(&fill_(td, 7), &td);
  EXPECT_THAT(td, TensorDictEq(full_like(td, 7)));
  EXPECT_THAT(zero_(td), TensorDictEq(zeros_like(td)));
  const TensorDict guarded({{"a", at::ones({2})}, {"b", at::ones({2}).requires_grad_()}});
  EXPECT_THAT([&] { zero_(guarded); },
              ThrowsWith<c10::ValueError>("zero_", "\"b\": the leaf there is guarded by autograd"));
  EXPECT_THAT([&] { fill_(guarded, 2); },
              ThrowsWith<c10::ValueError>("fill_", "\"b\": the leaf there is guarded by autograd"));
  EXPECT_TRUE(guarded["a"].equal(at::ones({2})));
}

TEST(LikeTest, AreLockedIfTheTreeIsUnlessTheyHaveOtherBatchDims) {
  TensorDict td = example();
  td.lock_();
  EXPECT_TRUE(zeros_like(td).is_locked());
  EXPECT_FALSE(new_zeros(td, {2}).is_locked());
}

TEST(LikeTest, WorksInsideVmap) {
  const TensorDict td({{"a", at::arange(6.).view({2, 3})}});
  const auto f = [](const TensorDict& tree) {
    const TensorDict twos = tree.map([](const at::Tensor& leaf) { return leaf.clone(); });
    fill_(twos, 2);
    return TensorDict({{"a", tree["a"] * twos["a"] + ones_like(tree)["a"]}});
  };
  EXPECT_TRUE(vmap(f)(td)["a"].equal(td["a"] * 2 + 1));
}

TEST(LikeTest, NothingIsFilledWithANumberThatOneDtypeDoesNotHave) {
  const TensorDict td({{"a", at::ones({2})}, {"b", at::ones({2}, at::kByte)}, {"c", at::ones({2}, at::kByte)}});
  EXPECT_THAT([&] { fill_(td, 300); }, ThrowsWith<c10::ValueError>("fill_", "\"b\"", "\"c\""));
  EXPECT_TRUE(td["a"].equal(at::ones({2})));
  EXPECT_TRUE(fill_(TensorDict({{"flag", at::ones({2}, at::kBool)}}), 0)["flag"].logical_not().all().item<bool>());
}

}  // namespace
}  // namespace graft
