#include "tensordict/parallel_map.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict large() {
  TensorDict td(std::vector<int64_t>{4});
  for (int i = 0; i < 8; ++i) td.set("part.x" + std::to_string(i), at::rand({4, 5000}));
  return td;
}

/// Notes the threads that called it, and waits for a second one.
class Threads {
 public:
  void note() {
    std::unique_lock lock(mutex_);
    seen_.insert(std::this_thread::get_id());
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::milliseconds(500), [&] { return seen_.size() > 1; });
  }
  std::size_t count() const { return seen_.size(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::thread::id> seen_;
};

class ParallelMapTest : public ::testing::Test {
 protected:
  ParallelMapTest() { at::set_num_threads(2); }
};

TEST_F(ParallelMapTest, EqualsMapAndUsesThreadsForLargeLeaves) {
  const TensorDict td = large();
  const auto doubled = [](const at::Tensor& leaf) { return leaf * 2; };
  EXPECT_THAT(parallel_map(td, doubled), TensorDictEq(map(td, doubled)));
  Threads threads;
  parallel_map(td, [&](const at::Tensor& leaf) {
    threads.note();
    return leaf;
  });
  EXPECT_EQ(threads.count(), 2u);
}

TEST_F(ParallelMapTest, LeavesSmallLeavesToTheCallingThread) {
  const TensorDict td({{"a", at::zeros({2})}, {"b", at::zeros({2})}});
  std::set<std::thread::id> seen;
  parallel_map(td, [&](const at::Tensor& leaf) {
    seen.insert(std::this_thread::get_id());
    return leaf;
  });
  EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
}

TEST_F(ParallelMapTest, HasTheModesOfTheCallingThread) {
  TensorDict td = large();
  for (const at::Tensor& leaf : td.values()) leaf.requires_grad_();
  const at::NoGradGuard no_grad;
  const TensorDict doubled = parallel_map(td, [](const at::Tensor& leaf) { return leaf * 2; });
  for (const at::Tensor& leaf : doubled.values()) EXPECT_FALSE(leaf.requires_grad());
}

TEST_F(ParallelMapTest, PassesOnWhatTheFunctionThrows) {
  const TensorDict td = large();
  std::atomic<int> calls = 0;
  EXPECT_THAT(
      [&] {
        parallel_map(td, [&](const at::Tensor& leaf) -> at::Tensor {
          TORCH_CHECK_VALUE(++calls != 3, "the third leaf");
          return leaf;
        });
      },
      ThrowsWith<c10::ValueError>("the third leaf"));
  EXPECT_THAT([&] { parallel_map(td, [](const at::Tensor& leaf) { return leaf.sum(); }); },
              ThrowsWith<c10::ValueError>("\"part.x0\"", "\"part.x7\""));
}

TEST_F(ParallelMapTest, WorksInsideVmap) {
  const TensorDict td = large();
  const auto doubled = [](const TensorDict& sample) {
    return parallel_map(sample, [](const at::Tensor& leaf) { return leaf * 2; });
  };
  EXPECT_THAT(vmap(doubled)(td), TensorDictEq(map(td, [](const at::Tensor& leaf) { return leaf * 2; })));
}

TEST_F(ParallelMapTest, OfPairsEqualsZipMap) {
  const TensorDict a = large(), b = large();
  const auto add = [](const at::Tensor& x, const at::Tensor& y) { return x + y; };
  EXPECT_THAT(parallel_zip_map(a, b, add), TensorDictEq(zip_map(a, b, add)));
  EXPECT_THAT([&] { parallel_zip_map(a, TensorDict(), add); }, ThrowsWith<c10::ValueError>("\"part.x0\": missing"));
}

}  // namespace
}  // namespace graft
