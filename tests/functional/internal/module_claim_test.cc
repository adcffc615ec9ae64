// Claims of this thread against claims of another one. (threads_test.cc has what takes them.)
#include "functional/internal/module_claim.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/testing/throws_with.h"

namespace graft::internal {
namespace {

using testing::ThrowsWith;
using torch::nn::Linear;
using torch::nn::Module;
using torch::nn::Sequential;

constexpr auto kExclusive = ClaimKind::kExclusive;
constexpr auto kShared = ClaimKind::kShared;

void on_another_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// Claims and lets go.
std::function<void()> claims(Module& module, ClaimKind kind) {
  return [&module, kind] { const ModuleClaim claim(module, kind, "second_call"); };
}

class ModuleClaimTest : public ::testing::Test {
 protected:
  void expect_conflict(Module& module, ClaimKind kind) {
    on_another_thread([&] {
      EXPECT_THAT(claims(module, kind), ThrowsWith<c10::Error>("second_call", "is held by", "on another thread"));
    });
  }
  void expect_free(Module& module, ClaimKind kind) {
    on_another_thread([&] { EXPECT_NO_THROW(claims(module, kind)()); });
  }

  Linear layer_{2, 2};
  Sequential root_{layer_, torch::nn::ReLU()};
};

TEST_F(ModuleClaimTest, ExcludesOtherThreadsUntilItEnds) {
  {
    const ModuleClaim claim(*layer_, kExclusive, "first_call");
    expect_conflict(*layer_, kExclusive);
    expect_conflict(*layer_, kShared);
    on_another_thread([&] {
      EXPECT_THAT(claims(*layer_, kExclusive), ThrowsWith<c10::Error>("LinearImpl", "first_call", "unchanged"));
    });
  }
  expect_free(*layer_, kExclusive);
  expect_free(*layer_, kShared);
}

TEST_F(ModuleClaimTest, LetsOthersShareButNotExclude) {
  {
    const ModuleClaim claim(*layer_, kShared, "first_call");
    expect_free(*layer_, kShared);
    expect_conflict(*layer_, kExclusive);
  }
  expect_free(*layer_, kExclusive);
}

TEST_F(ModuleClaimTest, CoversTheWholeTree) {
  for (const ClaimKind kind : {kExclusive, kShared}) {
    {
      const ModuleClaim claim(*root_, kind, "first_call");
      expect_conflict(*layer_, kExclusive);
    }
    {
      const ModuleClaim claim(*layer_, kind, "first_call");
      expect_conflict(*root_, kExclusive);
    }
  }
  const ModuleClaim claim(*layer_, kExclusive, "first_call");
  expect_conflict(*root_, kShared);
}

TEST_F(ModuleClaimTest, IsNoneOfOtherModules) {
  Sequential other(Linear(2, 2));
  const ModuleClaim claim(*root_, kExclusive, "first_call");
  const ModuleClaim shared(*root_, kShared, "first_call");
  for (int i = 0; i < 3; ++i) {
    expect_free(*other, kExclusive);
    expect_free(*other, kShared);
  }
}

TEST_F(ModuleClaimTest, NestsOnItsOwnThread) {
  const ModuleClaim outer(*root_, kExclusive, "first_call");
  const ModuleClaim shared(*layer_, kShared, "first_call");
  {
    const ModuleClaim inner(*layer_, kExclusive, "first_call");
    const ModuleClaim again(*layer_, kShared, "first_call");
  }
  expect_conflict(*layer_, kExclusive);
}

TEST_F(ModuleClaimTest, NestsSharedClaims) {
  Linear other(2, 2);
  const ModuleClaim first(*layer_, kShared, "first_call");
  {
    const ModuleClaim second(*other, kShared, "first_call");
    expect_conflict(*other, kExclusive);
    expect_free(*other, kShared);
  }
  expect_free(*other, kExclusive);
  expect_conflict(*layer_, kExclusive);
}

TEST_F(ModuleClaimTest, MayExcludeItsOwnSharedClaimButNotThoseOfOthers) {
  const ModuleClaim mine(*layer_, kShared, "first_call");
  on_another_thread([&] {
    const ModuleClaim other(*layer_, kShared, "second_call");
    on_another_thread([&] { EXPECT_THROW(claims(*layer_, kExclusive)(), c10::Error); });
    EXPECT_THROW(claims(*layer_, kExclusive)(), c10::Error);
  });
  EXPECT_NO_THROW(claims(*layer_, kExclusive)());
}

TEST_F(ModuleClaimTest, MayEndOnAnotherThread) {
  auto claim = std::make_unique<ModuleClaim>(*layer_, kExclusive, "first_call");
  on_another_thread([&] { claim.reset(); });
  expect_free(*layer_, kExclusive);
}

TEST_F(ModuleClaimTest, OutlivesTheThreadThatMadeIt) {
  std::unique_ptr<ModuleClaim> claim;
  on_another_thread([&] { claim = std::make_unique<ModuleClaim>(*layer_, kExclusive, "first_call"); });
  // A new thread may well be where the old one was.
  for (int i = 0; i < 10; ++i) expect_conflict(*layer_, kExclusive);
  claim.reset();
  expect_free(*layer_, kExclusive);
}

TEST_F(ModuleClaimTest, TakesInWhatCameToTheTree) {
  { const ModuleClaim claim(*root_, kExclusive, "first_call"); }
  Linear late(2, 2);
  root_->push_back(late);
  for (const ClaimKind kind : {kExclusive, kShared}) {
    const ModuleClaim claim(*root_, kind, "first_call");
    expect_conflict(*late, kExclusive);
  }
  expect_free(*late, kExclusive);
  on_another_thread([&] {
    { const ModuleClaim claim(*root_, kExclusive, "first_call"); }
    Linear later(2, 2);
    root_->push_back(later);
    const ModuleClaim claim(*later, kExclusive, "first_call");
    expect_conflict(*root_, kExclusive);
  });
}

TEST_F(ModuleClaimTest, LeavesNothingOfAThreadThatEnds) {
  const std::size_t before = threads_with_shared_claims();
  on_another_thread([&] {
    claims(*layer_, kShared)();
    EXPECT_EQ(threads_with_shared_claims(), before + 1);
  });
  EXPECT_EQ(threads_with_shared_claims(), before);
}

TEST_F(ModuleClaimTest, HoldsBackWhoeverComesLater) {
  // A counter that is not atomic shows whether two threads were ever in at once, here and to a thread sanitizer.
  int count = 0, entries = 0;
  std::atomic<int> refusals = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int done = 0; done < 500;) {
        try {
          const ModuleClaim claim(*root_, kExclusive, "call");
          EXPECT_EQ(count++, 0);
          ++entries;
          --count;
          ++done;
        } catch (const c10::Error&) {
          ++refusals;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(entries, 2000);
}

TEST_F(ModuleClaimTest, KeepsSharersAndExcludersApart) {
  std::atomic<int> sharers = 0, excluders = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, is_sharer = t % 2 == 0] {
      for (int done = 0; done < 500;) {
        try {
          const ModuleClaim claim(*root_, is_sharer ? kShared : kExclusive, "call");
          std::atomic<int>& mine = is_sharer ? sharers : excluders;
          ++mine;
          EXPECT_EQ((is_sharer ? excluders : sharers).load(), 0);
          --mine;
          ++done;
        } catch (const c10::Error&) {
          std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace graft::internal
