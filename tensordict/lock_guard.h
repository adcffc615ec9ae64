// Scopes in which a tree is locked, or is not; afterwards it is as before.
//
//   {
//     LockGuard guard(params);                              // no leaf is added, replaced or removed in here
//     train(params);
//   }
//
// Python: `with td.lock_():` and `with td.unlock_():`.
#pragma once

#include "tensordict/tensordict.h"

namespace graft {

/// Locks `tree`, which has to outlive the guard.
class [[nodiscard]] LockGuard {
 public:
  explicit LockGuard(TensorDict& tree) : tree_(tree), was_locked_(tree.is_locked()) { tree.lock_(); }
  ~LockGuard() {
    if (!was_locked_) tree_.unlock_();
  }
  LockGuard(const LockGuard&) = delete;
  LockGuard& operator=(const LockGuard&) = delete;

 private:
  TensorDict& tree_;
  const bool was_locked_;
};

/// Unlocks `tree`, which has to outlive the guard.
class [[nodiscard]] UnlockGuard {
 public:
  explicit UnlockGuard(TensorDict& tree) : tree_(tree), was_locked_(tree.is_locked()) { tree.unlock_(); }
  ~UnlockGuard() {
    if (was_locked_) tree_.lock_();
  }
  UnlockGuard(const UnlockGuard&) = delete;
  UnlockGuard& operator=(const UnlockGuard&) = delete;

 private:
  TensorDict& tree_;
  const bool was_locked_;
};

}  // namespace graft
