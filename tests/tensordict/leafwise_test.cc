#include "tensordict/leafwise.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "functional/grad.h"
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

TEST(LeafwiseTest, FilledTreesKeepShapesAndDtypes) {
  EXPECT_THAT(full_like(example(), 3), TensorDictEq(example()));
  EXPECT_EQ(zeros_like(example())["b"].scalar_type(), at::kLong);
  EXPECT_EQ(ones_like(example())["b"].sum().item<int64_t>(), 2);
  EXPECT_EQ(empty_like(example())["b"].sizes(), Sizes{2});
  EXPECT_FALSE(zeros_like(tied())["a"].is_same(zeros_like(tied())["n.c"]));
}

TEST(LeafwiseTest, RandomTreesAreThoseOfTheGenerator) {
  const TensorDict td = tied();
  at::manual_seed(3);
  const TensorDict uniform = rand_like(td), normal = randn_like(td);
  at::manual_seed(3);
  for (const auto& [path, leaf] : td.leaves()) EXPECT_TRUE(uniform[path].equal(at::rand_like(leaf))) << path;
  for (const auto& [path, leaf] : td.leaves()) EXPECT_TRUE(normal[path].equal(at::randn_like(leaf))) << path;
  EXPECT_THAT([&] { rand_like(example()); }, ThrowsWith<c10::ValueError>("rand_like", "\"b\": dtype long"));
  EXPECT_THAT([&] { randn_like(example()); }, ThrowsWith<c10::ValueError>("randn_like", "\"b\": dtype long"));
}

TEST(LeafwiseTest, NewTreesHaveOtherBatchDims) {
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

TEST(LeafwiseTest, LeavesAreFilledInPlace) {
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

TEST(LeafwiseTest, DetachSharesAndCloneCopies) {
  const TensorDict td = example();
  EXPECT_TRUE(detach(td)["a"].is_alias_of(td["a"]));
  EXPECT_FALSE(clone(td)["a"].is_alias_of(td["a"]));
  EXPECT_THAT(clone(td), TensorDictEq(td));
  const at::Tensor x = at::ones({2}).requires_grad_();
  clone(TensorDict({{"x", x * 2}}))["x"].sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({2}, 2.)));
  EXPECT_FALSE(detach(TensorDict({{"x", x}}))["x"].requires_grad());
}

TEST(LeafwiseTest, AutogradDoesNotSeeWhatIsWrittenToData) {
  const at::Tensor x = at::ones({2}).requires_grad_();
  const TensorDict aliases = data(TensorDict({{"x", x}}));
  EXPECT_FALSE(aliases["x"].requires_grad());
  const auto version = x._version();
  aliases["x"].add_(1);
  EXPECT_EQ(x._version(), version);
  EXPECT_TRUE(x.detach().equal(at::full({2}, 2.)));
}

TEST(LeafwiseTest, ATensorUnderTwoNamesStaysOne) {
  const TensorDict td = tied();
  for (const TensorDict& got : {clone(td), detach(td), data(td), contiguous(td), to(td, at::kDouble),
                                to(td, at::Device(at::kMeta)), to(td, at::Device(at::kCPU), {.copy = true})}) {
    EXPECT_TRUE(got["a"].is_same(got["n.c"]));
    EXPECT_FALSE(got["a"].is_same(got["b"]));
  }
}

TEST(LeafwiseTest, ToChangesDtypeAndDevice) {
  const TensorDict td = example();
  EXPECT_EQ(to(td, at::kDouble)["b"].scalar_type(), at::kDouble);
  EXPECT_TRUE(to(td, at::kFloat)["a"].is_same(td["a"]));
  EXPECT_TRUE(to(td, at::Device(at::kMeta))["a"].is_meta());
  EXPECT_EQ(to(td, at::Device(at::kMeta))["b"].scalar_type(), at::kLong);
  EXPECT_TRUE(cpu(td)["a"].is_same(td["a"]));
  EXPECT_FALSE(to(td, at::Device(at::kCPU), {.copy = true})["a"].is_alias_of(td["a"]));
}

TEST(LeafwiseTest, ContiguousCopiesWhatIsNot) {
  const TensorDict td({{"a", at::arange(6).view({2, 3}).t()}, {"b", at::ones({3})}}, {3});
  EXPECT_FALSE(is_contiguous(td));
  EXPECT_TRUE(is_contiguous(contiguous(td)));
  EXPECT_THAT(contiguous(td), TensorDictEq(td));
  EXPECT_TRUE(contiguous(td)["b"].is_same(td["b"]));
  EXPECT_TRUE(is_contiguous(TensorDict()));
}

TEST(LeafwiseTest, RequiresGradIsAllOrNothing) {
  const TensorDict td = example();
  EXPECT_THAT([&] { requires_grad_(td); }, ThrowsWith<c10::ValueError>("\"b\"", "dtype long"));
  EXPECT_FALSE(td["a"].requires_grad());
  EXPECT_FALSE(requires_grad(td));
  EXPECT_TRUE(requires_grad_(to(td, at::kDouble))["b"].requires_grad());
  td["a"].requires_grad_();
  EXPECT_TRUE(requires_grad(td));
  const TensorDict computed({{"x", td["a"] * 2}, {"y", td["a"]}, {"z", td["a"] + 1}});
  EXPECT_THAT([&] { requires_grad_(computed, false); }, ThrowsWith<c10::ValueError>("\"x\"", "\"z\"", "detach"));
  EXPECT_TRUE(td["a"].requires_grad());
  EXPECT_FALSE(requires_grad(requires_grad_(td, false)));
}

TEST(LeafwiseTest, GradHoldsTheLeavesThatHaveOne) {
  TensorDict td({{"a", at::ones({2}).requires_grad_()}, {"b", at::ones({2}).requires_grad_()}, {"c", at::ones({2})}},
                {2});
  EXPECT_TRUE(grad(td).empty());
  const at::Tensor product = td["a"] * 3;
  product.sum().backward();
  td.set("d", product);  // no leaf of autograd
  const TensorDict got = grad(td);
  EXPECT_THAT(got, TensorDictEq(TensorDict({{"a", at::full({2}, 3.)}}, {2})));
  EXPECT_TRUE(got["a"].is_same(td["a"].grad()));
  EXPECT_TRUE(grad(td.lock_()).is_locked());
  EXPECT_EQ(&zero_grad(td, /*set_to_none=*/false), &td);
  EXPECT_TRUE(td["a"].grad().equal(at::zeros({2})));
  zero_grad(td);
  EXPECT_FALSE(td["a"].grad().defined());
}

TEST(LeafwiseTest, TreesThatStandForTheSameLeavesAreLockedAsTheyAre) {
  TensorDict td = example();
  td.lock_();
  EXPECT_TRUE(zeros_like(td).is_locked() && detach(td).is_locked() && data(td).is_locked());
  EXPECT_TRUE(to(td, at::kDouble).is_locked() && cpu(td).is_locked());
  EXPECT_FALSE(clone(td).is_locked() || contiguous(td).is_locked() || new_zeros(td, {2}).is_locked());
}

TEST(LeafwiseTest, WorksInsideVmapAndGrad) {
  const TensorDict td({{"a", at::arange(6.).view({2, 3})}, {"b", at::arange(2.)}});
  const auto f = [](const TensorDict& tree) {
    const TensorDict copy = to(clone(tree), at::kDouble);
    fill_(copy, 2);
    return TensorDict({{"a", tree["a"] * copy["a"] + ones_like(tree)["a"] * detach(tree)["b"]}});
  };
  EXPECT_TRUE(vmap(f)(td)["a"].equal((td["a"] * 2 + td["b"].view({2, 1})).to(at::kDouble)));
  const TensorDict slope = grad([&](const TensorDict& tree) { return f(tree)["a"].sum(); })(
      TensorDict({{"a", at::ones({3})}, {"b", at::ones({})}}));
  EXPECT_TRUE(slope["a"].equal(at::full({3}, 2.)));
  EXPECT_EQ(slope["b"].item<float>(), 0);
}

}  // namespace
}  // namespace graft
