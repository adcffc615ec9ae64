// ModuleClaim: a module tree belongs to one thread for a while, or to several that do not write to it.
//
//   const ModuleClaim claim(module, ClaimKind::kExclusive, "to_module");   // throws if another thread has a claim
//   SwapPlan& plan = claim.plan();                                         // may be read and written through now
//
// NOTE: [Claims]
//   1. Two claims of different threads conflict if they have a module in common, unless both are shared.
//   2. Claims of one thread never conflict. Swaps nest, and a concurrent call may be made under a swap, or a swap in a
//      concurrent call.
//   3. A claim belongs to the thread that made it, whichever thread ends it.
//   4. A claim that conflicts is an error for the thread that comes later, not for the one that is there.
// Nothing of a module but its children is read before it is claimed.
//
// Exclusive claims are in one list under one lock. A shared claim takes no lock as long as there is no exclusive one
// anywhere: it stores its set of modules in its thread's own place, and then looks whether there are exclusive claims;
// an exclusive claim counts itself, and then looks at the places. Whichever order these come in, one sees the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "functional/internal/module_set.h"
#include "functional/internal/swap_plan.h"

namespace graft::internal {

enum class ClaimKind {
  kExclusive,  ///< the module is written
  kShared,     ///< it is only read
};

struct SharedPlace;

class [[nodiscard]] ModuleClaim {
 public:
  /// `call` is named in messages, and in those of others that meet the claim.
  /// \throws c10::Error if a claim of another thread conflicts.
  ModuleClaim(torch::nn::Module& root, ClaimKind kind, std::string_view call);
  ~ModuleClaim();
  ModuleClaim(const ModuleClaim&) = delete;
  ModuleClaim& operator=(const ModuleClaim&) = delete;

  /// Was it made by the thread that asks?
  bool is_of_this_thread() const;

  /// This thread's plan of the tree, as plan_for returns it.
  SwapPlan& plan() const { return *plan_; }

 private:
  friend struct ClaimTable;

  void enter();
  bool enter_place();
  void leave() noexcept;
  void move_to(const ModuleSet& modules);

  const uint64_t thread_;
  const ClaimKind kind_;
  const std::string_view call_;
  std::shared_ptr<SwapPlan> plan_;
  std::unique_ptr<const ModuleSet> first_modules_;  ///< if there was no plan yet
  const ModuleSet* modules_;
  SharedPlace* place_ = nullptr;  ///< where the claim is, if it is not in the list
};

/// How many threads have made a shared claim and are still running.
std::size_t threads_with_shared_claims();

}  // namespace graft::internal
