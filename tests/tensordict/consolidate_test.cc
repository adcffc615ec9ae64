#include "tensordict/consolidate.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tensordict/archive.h"
#include "tensordict/update.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() {
  const at::Tensor shared = at::rand({2, 2});
  TensorDict td({{"w", at::rand({3, 2}).t()},
                 {"flag", at::tensor({1, 0}).to(at::kBool)},
                 {"a.z", at::zeros({2, 0}, at::kLong)},
                 {"a.c", at::rand({2, 5}, at::kComplexDouble)},
                 {"half", at::rand({2}).to(at::kBFloat16)},
                 {"tied", shared},
                 {"a.tied", shared}},
                {2});
  td["w"].requires_grad_();
  return td;
}

TEST(ConsolidatedTest, HasTheLeavesAsAlignedViewsOfOneBuffer) {
  const TensorDict td = example();
  const Consolidated state(td);
  EXPECT_THAT(state.tree(), TensorDictEq(td));
  for (const auto& [path, leaf] : state.tree().leaves()) {
    EXPECT_TRUE(leaf.is_alias_of(state.buffer())) << path;
    EXPECT_TRUE(leaf.is_contiguous()) << path;
    EXPECT_EQ(leaf.storage_offset() * static_cast<int64_t>(leaf.element_size()) % 64, 0) << path;
    EXPECT_EQ(leaf.requires_grad(), td[path].requires_grad()) << path;
    EXPECT_TRUE(leaf.is_leaf()) << path;
  }
  EXPECT_TRUE(state.tree()["tied"].is_same(state.tree()["a.tied"]));
  EXPECT_TRUE(state.tree().is_locked());
  EXPECT_FALSE(td["tied"].is_alias_of(state.buffer()));
}

TEST(ConsolidatedTest, CopiesWholeBuffers) {
  const Consolidated state(example());
  const Consolidated copy = state.clone();
  EXPECT_THAT(copy.tree(), TensorDictEq(state.tree()));
  copy.buffer().zero_();
  EXPECT_EQ(copy.tree()["tied"].sum().item<float>(), 0);
  EXPECT_NE(state.tree()["tied"].sum().item<float>(), 0);
  EXPECT_TRUE(state.to(at::kCPU).buffer().is_same(state.buffer()));
  const Consolidated meta = state.to(at::kMeta);
  EXPECT_TRUE(meta.tree()["a.c"].is_meta());
  EXPECT_EQ(meta.tree()["a.c"].sizes(), state.tree()["a.c"].sizes());
}

TEST(ConsolidatedTest, ShowsBytesThatCameFromElsewhere) {
  const Consolidated sender(example()), receiver(example());
  const Consolidated received = receiver.with_buffer(sender.buffer().clone());
  EXPECT_THAT(received.tree(), TensorDictEq(sender.tree()));
  EXPECT_THAT([&] { receiver.with_buffer(at::zeros({3}, at::kByte)); }, ThrowsWith<c10::ValueError>("[3]", "expected"));
  EXPECT_THAT([&] { receiver.with_buffer(at::zeros(sender.buffer().sizes())); }, ThrowsWith<c10::ValueError>("float"));
}

TEST(ConsolidatedTest, IsACheckpointOfOneTensor) {
  const Consolidated state(example());
  const std::string file = ::testing::TempDir() + "/consolidated.pt";
  save(TensorDict({{"bytes", state.buffer()}}), file);
  const Consolidated restored(example());
  update_(TensorDict({{"bytes", restored.buffer()}}), load(file));
  EXPECT_THAT(restored.tree(), TensorDictEq(state.tree()));
}

TEST(ConsolidatedTest, OfNothingIsEmptyAndOfPartsKeepsTheirBatchDims) {
  EXPECT_EQ(Consolidated(TensorDict()).buffer().numel(), 0);
  TensorDict td({{"n.x", at::rand({2, 3})}}, {2});
  td.set_batch_size("n", {2, 3});
  EXPECT_EQ(Consolidated(td).tree().batch_size("n"), (std::vector<int64_t>{2, 3}));
}

TEST(ConsolidatedTest, ListsEveryLeafThatDoesNotGoIn) {
  const TensorDict td({{"a", at::zeros({2})}, {"s", at::eye(2).to_sparse()}, {"m", at::zeros({2}, at::kMeta)}});
  EXPECT_THAT([&] { Consolidated{td}; }, ThrowsWith<c10::ValueError>("\"s\": Sparse", "\"m\": on meta, expected cpu"));
}

}  // namespace
}  // namespace graft
