// Random nests of transforms, a third of which throw at a random place: after each call the thread is as it was, each
// function that did not throw has the value that it had first, up to how memory happens to be aligned, and memory stays
// flat.
//
// A failure prints its run; GRAFT_FUZZ_RUNS says how many there are.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/random.h"
#include "tests/fuzz/random_transform.h"
#include "tests/testing/counting_allocator.h"
#include "tests/testing/heap.h"
#include "tests/testing/module_snapshot.h"

namespace graft::testing {
namespace {

constexpr int64_t kFunctions = 250;

/// The heap wavers by up to 15,136 bytes in three runs of up to 60,000 calls. The smallest allocation, if one call in
/// ten leaked it, would be 57,600 in the shortest.
constexpr int64_t kSlack = 30'000;

class TransformFuzzTest : public ::testing::Test {
 protected:
  TransformFuzzTest() {
    at::set_num_threads(1);
    for (int64_t i = 0; i < kFunctions; ++i) {
      functions_.push_back(random_function(random_, fuse_, static_cast<int>(1 + random_.below(3))));
      fuse_.set(-1, 0);
      expected_.push_back(functions_.back().f(x_));
      places_.push_back(fuse_.passed());
    }
  }

  /// Calls a random function, which throws in one of three calls.
  void call_one() {
    const auto chosen = static_cast<std::size_t>(random_.below(kFunctions));
    const RandomFunction& function = functions_[chosen];
    const bool should_throw = random_.below(3) == 0;
    fuse_.set(should_throw ? random_.below(places_[chosen]) : -1, random_.below(100));
    try {
      const at::Tensor value = function.f(x_);
      EXPECT_FALSE(should_throw) << function.text;
      EXPECT_TRUE(value.allclose(expected_[chosen], 1e-9, 1e-12))
          << function.text << ": " << value << expected_[chosen];
    } catch (const std::logic_error& error) {
      ADD_FAILURE() << function.text << ": " << error.what();
    } catch (...) {
      ++failures_;
    }
    ++calls_;
    const std::string changes = before_.thread_changes_to(Snapshot(module_));
    EXPECT_EQ(changes, "") << function.text;
  }

  Random random_{1};
  Fuse fuse_;
  torch::nn::Module module_;
  const at::Tensor x_ = torch::tensor({0.3, -0.7, 1.1}, torch::kDouble);
  const Snapshot before_{module_};
  std::vector<RandomFunction> functions_;
  std::vector<at::Tensor> expected_;
  std::vector<int64_t> places_;
  int64_t calls_ = 0, failures_ = 0;
};

TEST_F(TransformFuzzTest, ThreadsValuesAndMemoryStayAsTheyAre) {
  const auto& tensors = CountingAllocator::install();
  constexpr int64_t kGroups = 10;
  const int64_t calls_per_group = number_from("GRAFT_FUZZ_RUNS", 20'000) / kGroups;
  std::optional<int64_t> heap_before;
  std::optional<CountingAllocator::Live> tensors_before;
  for (int64_t group = 0; group < kGroups; ++group) {
    for (int64_t i = 0; i < calls_per_group; ++i) {
      call_one();
      ASSERT_FALSE(HasFailure()) << "call " << calls_;
    }
    if (group == 0) {  // fills the caches that there are
      heap_before = heap_bytes();
      tensors_before = tensors.live();
    }
    EXPECT_EQ(tensors.live(), *tensors_before) << "after " << calls_ << " calls";
  }
  const int64_t growth = heap_bytes() - *heap_before;
  std::cout << calls_ << " calls, " << failures_ << " of which threw; the heap grew by " << growth << " bytes\n";
  EXPECT_LE(growth, kSlack);
}

}  // namespace
}  // namespace graft::testing
