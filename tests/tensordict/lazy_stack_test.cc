#include "tensordict/lazy_stack.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tensordict/join.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using ::testing::ElementsAre;
using testing::TensorDictEq;
using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

TensorDict member(double value, int64_t length = 3) {
  return TensorDict({{"obs", at::full({2, length}, value)}, {"next.obs", at::full({2}, -value)}}, {2});
}

TEST(LazyStackTest, ReadsStack) {
  const LazyStack states({member(1), member(2), member(3)}, 1);
  EXPECT_EQ(states.size(), 3u);
  EXPECT_EQ(states.batch_size(), (Sizes{2, 3}));
  const TensorDict dense = stack({member(1), member(2), member(3)}, 1);
  EXPECT_TRUE(at::equal(states.at("obs"), dense["obs"]));
  EXPECT_THAT(states.stack(), TensorDictEq(dense));
  EXPECT_THAT(LazyStack({member(1), member(2), member(3)}, -1).stack(), TensorDictEq(dense));
}

TEST(LazyStackTest, HoldsTheMembersThemselves) {
  const TensorDict first = member(1);
  LazyStack states({first, member(2)});
  first["obs"].fill_(7);
  EXPECT_EQ(states.at("obs")[0][0][0].item<float>(), 7);
  EXPECT_TRUE(states.each("obs")[0].is_same(first["obs"]));
  states[1].set("extra", at::ones({2}));
  EXPECT_THAT(states.paths(), ElementsAre("obs", "next.obs"));
  EXPECT_THAT(states.partial_paths(), ElementsAre("extra"));
  EXPECT_EQ(states.stack().size(), 2u);
  EXPECT_THAT([&] { states.at("extra"); }, ThrowsWith<c10::IndexError>("\"extra\"", "member 0"));
  EXPECT_THAT([&] { states[2]; }, ThrowsWith<c10::IndexError>("no member 2"));
}

TEST(LazyStackTest, ShowsShapesThatDiffer) {
  LazyStack states({member(1), member(2, 5)});
  EXPECT_EQ(states.shape("obs"), (std::vector<std::optional<int64_t>>{2, 2, std::nullopt}));
  EXPECT_EQ(states.shape("next.obs"), (std::vector<std::optional<int64_t>>{2, 2}));
  EXPECT_THAT([&] { states.at("obs"); }, ThrowsWith<c10::ValueError>("\"obs\"", "member 1: float [2, 5]", "[2, 3]"));
  EXPECT_THAT([&] { states.stack(); }, ThrowsWith<c10::ValueError>("obs", "[2, 5]"));
  states[1].set("obs", at::zeros({2}));
  EXPECT_THAT([&] { states.shape("obs"); }, ThrowsWith<c10::ValueError>("[2, 3] and [2]"));
}

TEST(LazyStackTest, WritesReachTheMembers) {
  const TensorDict first = member(1);
  LazyStack states({first, member(2)});
  const at::Tensor value = at::arange(4).view({2, 2});
  states.set("reward", value);
  EXPECT_TRUE(at::equal(states[1]["reward"], value[1]));
  states.set_("obs", at::full({}, 9));
  EXPECT_EQ(first["obs"].sum().item<float>(), 54);
  states.erase("next");
  EXPECT_FALSE(states[0].contains("next"));
  EXPECT_TRUE(first.contains("next"));
}

TEST(LazyStackTest, AFailedWriteChangesNoMember) {
  LazyStack states({member(1), member(2)});
  EXPECT_THAT([&] { states.set("obs", at::zeros({2, 3})); }, ThrowsWith<c10::ValueError>("[2, 3]", "[2, 2]"));
  EXPECT_THAT([&] { states.set("obs.x", at::zeros({2, 2})); }, ThrowsWith<c10::ValueError>("\"obs\" is a leaf"));
  states[1].lock_();
  EXPECT_THAT([&] { states.set("obs", at::zeros({2, 2})); }, ThrowsWith<c10::Error>("locked"));
  EXPECT_THAT([&] { states.erase("obs"); }, ThrowsWith<c10::Error>("locked"));
  EXPECT_THAT([&] { states.set_("obs", at::zeros({5})); }, ThrowsWith<c10::ValueError>("[2, 2, 3]"));
  EXPECT_THAT([&] { states.set_("z", at::zeros({2})); }, ThrowsWith<c10::IndexError>("\"z\"", "member 0", "member 1"));
  EXPECT_THAT(states.members()[0], TensorDictEq(member(1)));
}

TEST(LazyStackTest, TakesMembersOfItsBatchSizeOnly) {
  LazyStack states({member(1)});
  states.append(member(3));
  states.insert(1, member(2));
  EXPECT_EQ(states.at("obs").mean({1, 2}).sum().item<float>(), 6);
  EXPECT_THAT([&] { states.append(TensorDict()); }, ThrowsWith<c10::ValueError>("[], expected [2]"));
  EXPECT_THAT([&] { states.insert(4, member(1)); }, ThrowsWith<c10::IndexError>("position 4"));
  EXPECT_THAT([] { LazyStack({}); }, ThrowsWith<c10::ValueError>("no trees"));
  EXPECT_THAT([] { LazyStack({member(1)}, 2); }, ThrowsWith<c10::IndexError>("dim=2"));
  EXPECT_THAT([] { LazyStack({member(1), TensorDict()}); }, ThrowsWith<c10::ValueError>("batch size []"));
}

}  // namespace
}  // namespace graft
