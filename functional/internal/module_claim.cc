#include "functional/internal/module_claim.h"

#include <c10/util/Exception.h>
#include <c10/util/Type.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace graft::internal {
namespace {

constexpr std::size_t kRememberedPairs = 4096;

/// Unlike an address or a std::thread::id it is not used again.
uint64_t this_thread() {
  static std::atomic<uint64_t> last = 0;
  thread_local const uint64_t number = last.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

}  // namespace

/// Where a thread keeps a shared claim without a lock; on a cache line of its own.
struct alignas(64) SharedPlace {
  SharedPlace();
  ~SharedPlace();

  std::atomic<const ModuleSet*> modules = nullptr;
  const uint64_t thread = this_thread();
};

/// All claims. Everything but the count is under ModuleSet::in_use.
struct ClaimTable {
  std::vector<const ModuleClaim*> claims;  ///< without those in places
  std::vector<const SharedPlace*> places;
  std::atomic<int> exclusive_count = 0;
  absl::flat_hash_set<std::pair<uint64_t, uint64_t>> disjoint;  ///< sets that were found to have nothing in common

  const ModuleSet::Entry* common(const ModuleSet& left, const ModuleSet& right);
  void check(const ModuleClaim& claim);

  /// Never destroyed: modules may be swapped while the program ends.
  static ClaimTable& get() {
    static auto* const table = new ClaimTable;
    return *table;
  }
};

SharedPlace::SharedPlace() {
  const std::lock_guard lock(ModuleSet::in_use());
  ClaimTable::get().places.push_back(this);
}

SharedPlace::~SharedPlace() {
  const std::lock_guard lock(ModuleSet::in_use());
  std::erase(ClaimTable::get().places, this);
}

/// ModuleSet::common_with, remembering what is disjoint.
const ModuleSet::Entry* ClaimTable::common(const ModuleSet& left, const ModuleSet& right) {
  const std::pair<uint64_t, uint64_t> numbers = std::minmax({left.number(), right.number()});
  if (disjoint.contains(numbers)) return nullptr;
  const ModuleSet::Entry* const found = left.common_with(right);
  if (found == nullptr) {
    if (disjoint.size() == kRememberedPairs) disjoint.clear();
    disjoint.insert(numbers);
  }
  return found;
}

/// Throws if a claim of another thread conflicts.
void ClaimTable::check(const ModuleClaim& claim) {
  const bool is_exclusive = claim.kind_ == ClaimKind::kExclusive;
  const auto check_with = [&](uint64_t thread, const ModuleSet* modules, std::string_view holder) {
    if (thread == claim.thread_ || modules == nullptr) return;
    const ModuleSet::Entry* const entry = common(*claim.modules_, *modules);
    TORCH_CHECK(entry == nullptr, claim.call_, ": the module ", c10::demangle(entry->type->name()), " is held by ",
                holder,
                " on another thread. A module is swapped by one thread at a time, and not while other threads "
                "are in concurrent calls of it.\nThe module is unchanged.");
  };
  for (const ModuleClaim* other : claims) {
    if (is_exclusive || other->kind_ == ClaimKind::kExclusive) {
      check_with(other->thread_, other->modules_, other->call_);
    }
  }
  if (!is_exclusive) return;
  for (const SharedPlace* place : places) {
    check_with(place->thread, place->modules.load(), "a concurrent functional_call");
  }
}

ModuleClaim::ModuleClaim(torch::nn::Module& root, ClaimKind kind, std::string_view call)
    : thread_(this_thread()), kind_(kind), call_(call), plan_(remembered_plan(root)) {
  if (plan_ == nullptr) first_modules_ = std::make_unique<const ModuleSet>(root);
  modules_ = plan_ != nullptr ? &plan_->module_set() : first_modules_.get();
  enter();
  if (plan_ != nullptr && is_current(*plan_, root)) return;
  try {
    auto plan = plan_for(root);
    move_to(plan->module_set());
    plan_ = std::move(plan);
  } catch (...) {
    leave();
    throw;
  }
}

ModuleClaim::~ModuleClaim() { leave(); }

bool ModuleClaim::is_of_this_thread() const { return thread_ == this_thread(); }

void ModuleClaim::enter() {
  if (kind_ == ClaimKind::kShared && enter_place()) return;
  ClaimTable& table = ClaimTable::get();
  const std::lock_guard lock(ModuleSet::in_use());
  const int exclusive = kind_ == ClaimKind::kExclusive;
  table.exclusive_count += exclusive;
  try {
    table.check(*this);
    table.claims.push_back(this);
  } catch (...) {
    table.exclusive_count -= exclusive;
    throw;
  }
}

/// Returns false if there are exclusive claims to compare with, or if the thread is in another concurrent call.
bool ModuleClaim::enter_place() {
  thread_local SharedPlace place;
  if (place.modules.load(std::memory_order_relaxed) != nullptr) return false;
  place.modules.store(modules_);
  if (ClaimTable::get().exclusive_count.load() == 0) {
    place_ = &place;
    return true;
  }
  place.modules.store(nullptr, std::memory_order_release);
  return false;
}

void ModuleClaim::leave() noexcept {
  if (place_ != nullptr) {
    place_->modules.store(nullptr, std::memory_order_release);
    return;
  }
  ClaimTable& table = ClaimTable::get();
  const std::lock_guard lock(ModuleSet::in_use());
  const auto last = std::find(table.claims.rbegin(), table.claims.rend(), this);
  table.claims.erase(std::next(last).base());
  if (kind_ == ClaimKind::kExclusive) --table.exclusive_count;
}

/// Puts a newer set in place of the claim's own, without letting go in between.
void ModuleClaim::move_to(const ModuleSet& modules) {
  const std::lock_guard lock(ModuleSet::in_use());
  modules_ = &modules;
  if (place_ != nullptr) place_->modules.store(modules_);
  ClaimTable::get().check(*this);
}

std::size_t threads_with_shared_claims() {
  const std::lock_guard lock(ModuleSet::in_use());
  return ClaimTable::get().places.size();
}

}  // namespace graft::internal
