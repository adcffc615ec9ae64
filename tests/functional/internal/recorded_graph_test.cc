#include "functional/internal/recorded_graph.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

namespace graft::internal {
namespace {

using torch::Tensor;

Tensor parameter() { return torch::ones({2}).set_requires_grad(true); }

TEST(RecordedGraphTest, FindsWhatABackwardWouldReach) {
  const uint64_t begin = recorded_so_far();
  const Tensor a = parameter(), b = parameter(), unused = parameter();
  const Tensor shared = a * b;
  const auto found = accumulated_from({(shared * shared).sum(), shared + 1, Tensor(), torch::ones({2})}, begin);
  ASSERT_EQ(found.size(), 2);
  for (const Tensor& tensor : found) EXPECT_TRUE(tensor.is_same(a) || tensor.is_same(b));
  EXPECT_FALSE(found[0].is_same(found[1]));
}

TEST(RecordedGraphTest, StopsAtWhatWasRecordedBefore) {
  const Tensor a = parameter(), b = parameter();
  const Tensor before = a * 2;
  const uint64_t begin = recorded_so_far();
  const auto found = accumulated_from({before * b, before}, begin);
  ASSERT_EQ(found.size(), 1);
  EXPECT_TRUE(found[0].is_same(b));
}

TEST(RecordedGraphTest, StopsAtWhatAnotherThreadRecorded) {
  const uint64_t begin = recorded_so_far();
  const Tensor a = parameter();
  Tensor elsewhere;
  std::thread([&] {
    for (int i = 0; i < 100; ++i) elsewhere = a * 2;
  }).join();
  EXPECT_TRUE(accumulated_from({elsewhere * 3}, begin).empty());
}

TEST(RecordedGraphTest, WalksALongGraphWithoutRecursion) {
  const uint64_t begin = recorded_so_far();
  const Tensor a = parameter();
  Tensor value = a;
  for (int i = 0; i < 100000; ++i) value = value + 1;
  EXPECT_EQ(accumulated_from({value}, begin).size(), 1);
}

}  // namespace
}  // namespace graft::internal
