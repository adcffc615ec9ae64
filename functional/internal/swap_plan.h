// SwapPlan: where every registered tensor of a module tree is held, found once and reused.
//
// NOTE: [When a plan is valid]
// A plan keeps addresses of registry entries and of data members. They stay right as long as the layout of the tree
// does (see functional/internal/module_layout.h). Members that can move in memory (the elements of a vector) are
// visited again to compare. A plan to swap by must also agree: each member holds what it held, or the tensor that its
// entry holds now, and no entry has come to hold what only a member held. (While a swap lasts
// the body may assign to members.)
//
// Which entries hold one tensor is not compared. So plans that saw what a scope installed are forgotten at its end, and
// ties are looked up again after a write for good.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "functional/internal/module_layout.h"
#include "functional/internal/module_set.h"
#include "functional/internal/module_slots.h"
#include "tensordict/key_table.h"

namespace graft::internal {

/// How a value can be installed in a slot.
enum class Reach : uint8_t {
  kMembers,   ///< entry and members are all known
  kRegistry,  ///< forward reads no member: the entry is all there is
  kUnknown,   ///< no known member holds it; forward keeps its own handle somewhere
  kDetached,  ///< the member of that name holds a tensor that is registered nowhere
};

/// NOTE: [Hidden handles]
/// A class that Graft does not know may hold the parameter of another module that is known, as a language model's head
/// holds its embedding: `out_ = embedding->weight`. To rebind does not reach such a handle. So the first
/// functional_call of a plan also redirects what it rebinds, and notes which old tensors operators are given all the
/// same. These are redirected in later calls too, and refused by guards; the others are not redirected again.
enum class HiddenHandles : uint8_t { kUnknown, kNone, kSome };

/// A handle by the name of its data member and its place among the handles of that name, which stay when other members
/// grow or shrink.
using HandleLabel = std::pair<std::string_view, uint32_t>;

/// Shows every handle of a module with its label.
void visit_labelled(const ModuleSlots& slots, torch::nn::Module& module,
                    absl::FunctionRef<void(HandleLabel, at::Tensor&)> visitor);

/// One handle in a data member.
struct Member {
  uint32_t module;  ///< index in SwapPlan::modules
  HandleLabel label;
  at::Tensor* handle;
};

using WeakTensor = c10::weak_intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;

/// A handle that no entry holds the tensor of.
struct StrayHandle {
  const at::Tensor* address;
  WeakTensor tensor;
};

/// One entry of a registry, with the members that hold the same tensor.
struct Slot {
  at::Tensor* entry;
  uint32_t module;        ///< index in SwapPlan::modules
  uint32_t first_member;  ///< range in SwapPlan::members
  uint32_t member_count;
  bool is_buffer;
  Reach reach;
  HiddenHandles hidden = HiddenHandles::kUnknown;
};

/// One module, as it was when the plan was made.
struct PlannedModule {
  torch::nn::Module* module;
  const std::type_info* type;
  const ModuleSlots* slots;
  uint32_t first_slot;  ///< in SwapPlan::slots: parameters, then buffers
  uint32_t parameter_count;
  uint32_t buffer_count;
  std::vector<at::Tensor*> handles;        ///< every member handle, in visiting order
  std::weak_ptr<torch::nn::Module> owner;  ///< empty if the root is not held by a shared_ptr
};

/// Some slots in order, as those that the keys of a tree stand for.
struct SlotList {
  std::vector<uint32_t> indices;     ///< in SwapPlan::slots
  std::vector<at::Tensor*> handles;  ///< of each slot in turn the entry, then each member
};

class SwapPlan {
 public:
  /// `number` tells the plans of a thread apart.
  explicit SwapPlan(torch::nn::Module& root, uint64_t number = 0);

  uint64_t number() const { return number_; }
  bool is_of(const torch::nn::Module& root) const { return modules_.front().module == &root; }
  const ModuleSet& module_set() const { return *module_set_; }
  bool shares_module_with(const SwapPlan& other) const;

  /// Is the module tree as it was? See the note.
  bool is_valid(torch::nn::Module& root) const;
  /// Do all addresses still hold, whatever was added?
  bool still_holds() const;
  /// Do the members hold what the note says? (Of a valid plan only.)
  bool members_agree() const;
  /// Makes every member hold what its entry holds. (Of a plan that still holds.)
  void reset_members() noexcept;
  /// Notes what a functional_call found out; `slot` is one of `slots`.
  void set_hidden(const Slot& slot, HiddenHandles hidden) { slots_[&slot - slots_.data()].hidden = hidden; }

  const std::vector<PlannedModule>& modules() const { return modules_; }
  const std::vector<Slot>& slots() const { return slots_; }

  /// The name of a slot in its registry.
  const std::string& entry_name(const Slot& slot) const { return entry_names_[&slot - slots_.data()]; }
  /// The names of a module's parameters, or of its buffers.
  absl::Span<const std::string> entry_names(const PlannedModule& planned, bool buffers) const;
  /// For kDetached: the member that disagrees.
  std::string_view detached_member(const Slot& slot) const { return detached_members_.at(&slot); }

  absl::Span<const Member> members(const Slot& slot) const {
    return absl::MakeSpan(members_.data() + slot.first_member, slot.member_count);
  }
  SlotList list_of(std::vector<uint32_t> indices) const;

  /// Every dotted name there is, a shared module under each of its names; empty entries included.
  const KeyTable& names() const { return names_; }
  /// Returns the table of some of the names, given by their positions in ascending order. The last tables are
  /// remembered, and with them the slots that they stand for.
  std::shared_ptr<const KeyTable> keys_for(const std::vector<uint32_t>& positions);
  /// The slot behind each name.
  const std::vector<uint32_t>& slot_of_name() const { return slot_of_name_; }
  /// Does every slot have one name? (Not if a module is shared.)
  bool is_one_to_one() const { return slot_of_name_.size() == slots_.size(); }
  /// Do two entries hold one tensor? Remembered until somebody writes to a module for good.
  bool has_ties();
  /// The same, looked up.
  bool holds_ties() const;

  /// Returns the slots that the keys of a tree stand for. The last tables are remembered, by identity.
  /// \throws c10::IndexError listing every key that stands for nothing.
  std::shared_ptr<const SlotList> slots_for(const std::shared_ptr<const KeyTable>& keys, std::string_view call);

 private:
  struct Mapping {
    std::shared_ptr<const KeyTable> keys;  // held, so that the address is not used again
    std::shared_ptr<const SlotList> slots;
    std::vector<uint32_t> positions;  // in names(), if it was made by keys_for
  };

  /// Where a walk over the tree is.
  struct Walk {
    std::vector<const torch::nn::Module*> ancestors;
    absl::flat_hash_map<const torch::nn::Module*, uint32_t> indices;  ///< in `modules`, of what it has seen
  };

  void add_module(torch::nn::Module& module, const std::weak_ptr<torch::nn::Module>& owner, const std::string& path,
                  Walk& walk);
  void describe(torch::nn::Module& module, const std::weak_ptr<torch::nn::Module>& owner);
  void add_slots(torch::nn::Module& module, bool buffers);
  void add_names(const PlannedModule& planned, const std::string& path);
  void match_members();
  std::vector<std::vector<Member>> find_members();
  std::optional<uint32_t> holder_in(const PlannedModule& planned, const at::Tensor& handle,
                                    const std::vector<std::vector<Member>>& members) const;
  Slot* own_slot(const PlannedModule& planned, std::string_view member);
  bool has_same_handles() const;
  const Mapping& remember(const std::shared_ptr<const KeyTable>& keys, std::vector<uint32_t> indices,
                          std::vector<uint32_t> positions);
  std::string unknown_key_message(std::string_view key) const;

  const uint64_t number_;
  std::vector<PlannedModule> modules_;
  std::vector<uint32_t> movable_modules_;  ///< those with handles that can move
  std::vector<Slot> slots_;
  std::vector<std::string> entry_names_;  ///< one for each slot
  ModuleLayout layout_;
  std::unique_ptr<const ModuleSet> module_set_;
  std::vector<Member> members_;
  std::vector<std::pair<const at::Tensor*, at::Tensor*>> twins_;  ///< each entry with each of its members
  std::vector<StrayHandle> strays_;
  absl::flat_hash_set<const at::TensorImpl*> stray_tensors_;  ///< that are defined
  KeyTable names_;
  std::vector<uint32_t> slot_of_name_;
  bool has_ties_;
  uint64_t seen_writes_;  ///< persistent_writes() when ties were looked up
  absl::flat_hash_map<const Slot*, std::string> detached_members_;
  std::map<std::string, uint32_t, std::less<>> module_of_path_;
  std::vector<Mapping> mappings_;
};

/// Returns this thread's plan of `root`, current or not, or nullptr. Reads nothing of the module.
std::shared_ptr<SwapPlan> remembered_plan(const torch::nn::Module& root);

/// Is the plan valid, and does it agree?
inline bool is_current(const SwapPlan& plan, torch::nn::Module& root) {
  return plan.is_valid(root) && plan.members_agree();
}

/// Returns this thread's plan of `root`, made anew if there is none that is current.
std::shared_ptr<SwapPlan> plan_for(torch::nn::Module& root);

/// The number of the newest plan of this thread.
uint64_t newest_plan();

/// Counts the writes for good, by all threads.
uint64_t persistent_writes();
void note_persistent_write();

/// Drops this thread's plans that are newer than `number` and share a module with `plan`.
void forget_plans_since(uint64_t number, const SwapPlan& plan);

}  // namespace graft::internal
