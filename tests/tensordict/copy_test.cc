#include "tensordict/copy.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "functional/grad.h"
#include "tests/testing/tensordict_matchers.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;

TensorDict example() { return TensorDict({{"a", at::full({2}, 3.)}, {"b", at::full({2}, 3, at::kLong)}}, {2}); }

/// Two leaves of floats, the first under two names.
TensorDict tied() {
  const at::Tensor w = at::arange(3.);
  return TensorDict({{"a", w}, {"b", at::ones({2})}, {"n.c", w}});
}

TEST(CopyTest, DetachSharesAndCloneCopies) {
  const TensorDict td = example();
  EXPECT_TRUE(detach(td)["a"].is_alias_of(td["a"]));
  EXPECT_FALSE(clone(td)["a"].is_alias_of(td["a"]));
  EXPECT_THAT(clone(td), TensorDictEq(td));
  const at::Tensor x = at::ones({2}).requires_grad_();
  clone(TensorDict({{"x", x * 2}}))["x"].sum().backward();
  EXPECT_TRUE(x.grad().equal(at::full({2}, 2.)));
  EXPECT_FALSE(detach(TensorDict({{"x", x}}))["x"].requires_grad());
}

TEST(CopyTest, AutogradDoesNotSeeWhatIsWrittenToData) {
  const at::Tensor x = at::ones({2}).requires_grad_();
  const TensorDict aliases = data(TensorDict({{"x", x}}));
  EXPECT_FALSE(aliases["x"].requires_grad());
  const auto version = x._version();
  aliases["x"].add_(1);
  EXPECT_EQ(x._version(), version);
  EXPECT_TRUE(x.detach().equal(at::full({2}, 2.)));
}

TEST(CopyTest, ATensorUnderTwoNamesStaysOne) {
  const TensorDict td = tied();
  for (const TensorDict& got : {clone(td), detach(td), data(td), contiguous(td), to(td, at::kDouble),
                                to(td, at::Device(at::kMeta)), to(td, at::Device(at::kCPU), {.copy = true})}) {
    EXPECT_TRUE(got["a"].is_same(got["n.c"]));
    EXPECT_FALSE(got["a"].is_same(got["b"]));
  }
}

TEST(CopyTest, ToChangesDtypeAndDevice) {
  const TensorDict td = example();
  EXPECT_EQ(to(td, at::kDouble)["b"].scalar_type(), at::kDouble);
  EXPECT_TRUE(to(td, at::kFloat)["a"].is_same(td["a"]));
  EXPECT_TRUE(to(td, at::Device(at::kMeta))["a"].is_meta());
  EXPECT_EQ(to(td, at::Device(at::kMeta))["b"].scalar_type(), at::kLong);
  EXPECT_TRUE(cpu(td)["a"].is_same(td["a"]));
  EXPECT_FALSE(to(td, at::Device(at::kCPU), {.copy = true})["a"].is_alias_of(td["a"]));
}

TEST(CopyTest, ContiguousCopiesWhatIsNot) {
  const TensorDict td({{"a", at::arange(6).view({2, 3}).t()}, {"b", at::ones({3})}}, {3});
  EXPECT_FALSE(is_contiguous(td));
  EXPECT_TRUE(is_contiguous(contiguous(td)));
  EXPECT_THAT(contiguous(td), TensorDictEq(td));
  EXPECT_TRUE(contiguous(td)["b"].is_same(td["b"]));
  EXPECT_TRUE(is_contiguous(TensorDict()));
}

TEST(CopyTest, TreesThatStandForTheSameLeavesAreLockedAsTheyAre) {
  TensorDict td = example();
  td.lock_();
  EXPECT_TRUE(detach(td).is_locked() && data(td).is_locked());
  EXPECT_TRUE(to(td, at::kDouble).is_locked() && cpu(td).is_locked());
  EXPECT_FALSE(clone(td).is_locked() || contiguous(td).is_locked());
}

TEST(CopyTest, TheDeviceIsThatOfAllLeaves) {
  TensorDict td = example();
  EXPECT_EQ(device(td), at::Device(at::kCPU));
  td.set("c", at::empty({2}, at::kMeta));
  EXPECT_EQ(device(td), std::nullopt);
  EXPECT_EQ(device(to(td, at::Device(at::kMeta))), at::Device(at::kMeta));
  EXPECT_EQ(device(TensorDict()), std::nullopt);
}

TEST(CopyTest, WorksInsideVmapAndGrad) {
  const TensorDict td({{"a", at::arange(6.).view({2, 3})}, {"b", at::arange(2.)}});
  const auto f = [](const TensorDict& tree) {
    return TensorDict({{"a", to(clone(tree), at::kDouble)["a"] * 2 + detach(tree)["b"]}});
  };
  EXPECT_TRUE(vmap(f)(td)["a"].equal((td["a"] * 2 + td["b"].view({2, 1})).to(at::kDouble)));
  const TensorDict slope = grad([&](const TensorDict& tree) { return f(tree)["a"].sum(); })(
      TensorDict({{"a", at::ones({3})}, {"b", at::ones({})}}));
  EXPECT_TRUE(slope["a"].equal(at::full({3}, 2.)));
  EXPECT_EQ(slope["b"].item<float>(), 0);
}

}  // namespace
}  // namespace graft
