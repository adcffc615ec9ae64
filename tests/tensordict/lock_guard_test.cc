#include "tensordict/lock_guard.h"

#include <gtest/gtest.h>

namespace graft {
namespace {

TEST(LockGuardTest, LocksForAScopeAndNestsWithUnlockGuard) {
  TensorDict td;
  {
    const LockGuard locked(td);
    EXPECT_TRUE(td.is_locked());
    {
      const UnlockGuard unlocked(td);
      EXPECT_FALSE(td.is_locked());
    }
    EXPECT_TRUE(td.is_locked());
    { const LockGuard again(td); }
    EXPECT_TRUE(td.is_locked());
  }
  EXPECT_FALSE(td.is_locked());
  { const UnlockGuard unlocked(td); }
  EXPECT_FALSE(td.is_locked());
}

}  // namespace
}  // namespace graft
