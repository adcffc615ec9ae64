#include "functional/internal/swap_plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "functional/internal/leaf_requests.h"
#include "tensordict/nested_key.h"

namespace graft::internal {
namespace {

using torch::nn::Module;

constexpr std::size_t kRememberedMappings = 4;
constexpr std::size_t kRememberedPlans = 64;

/// A member `weight_` stands for a parameter "weight".
std::string_view registered_name(std::string_view member) {
  if (member.size() > 1 && member.back() == '_') member.remove_suffix(1);
  return member;
}

bool is_name_of(std::string_view member, std::string_view entry) {
  return member == entry || registered_name(member) == entry;
}

std::vector<at::Tensor*> handles_of(const ModuleSlots& slots, Module& module) {
  std::vector<at::Tensor*> handles;
  slots.visit(module, [&](std::string_view, at::Tensor& handle) { handles.push_back(&handle); });
  return handles;
}

}  // namespace

void visit_labelled(const ModuleSlots& slots, Module& module,
                    absl::FunctionRef<void(HandleLabel, at::Tensor&)> visitor) {
  absl::flat_hash_map<std::string_view, uint32_t> counts;
  slots.visit(module, [&](std::string_view member, at::Tensor& handle) {
    visitor(HandleLabel(member, counts[member]++), handle);
  });
}

SwapPlan::SwapPlan(Module& root, uint64_t number) : number_(number), seen_writes_(persistent_writes()) {
  Walk walk;
  add_module(root, root.weak_from_this(), "", walk);
  match_members();
  has_ties_ = holds_ties();
  std::vector<ModuleSet::Entry> entries;
  entries.reserve(modules_.size());
  for (const PlannedModule& planned : modules_) entries.push_back({planned.module, planned.type});
  module_set_ = std::make_unique<const ModuleSet>(std::move(entries));
}

void SwapPlan::add_module(Module& module, const std::weak_ptr<Module>& owner, const std::string& path, Walk& walk) {
  TORCH_CHECK_VALUE(std::find(walk.ancestors.begin(), walk.ancestors.end(), &module) == walk.ancestors.end(),
                    "the module \"", path, "\" contains itself");
  const auto [known, is_new] = walk.indices.emplace(&module, static_cast<uint32_t>(modules_.size()));
  const uint32_t index = known->second;
  module_of_path_.emplace(path, index);
  if (is_new) describe(module, owner);
  add_names(modules_[index], path);
  walk.ancestors.push_back(&module);
  for (auto& item : child_registry(module)) {
    const std::shared_ptr<Module>& child = item.value();
    if (child != nullptr) add_module(*child, child, join_path(path, item.key()), walk);
  }
  walk.ancestors.pop_back();
}

void SwapPlan::describe(Module& module, const std::weak_ptr<Module>& owner) {
  modules_.push_back({.module = &module,
                      .type = &typeid(module),
                      .slots = &slots_of(module),
                      .first_slot = static_cast<uint32_t>(slots_.size()),
                      .parameter_count = static_cast<uint32_t>(parameter_registry(module).size()),
                      .buffer_count = static_cast<uint32_t>(buffer_registry(module).size()),
                      .handles = handles_of(slots_of(module), module),
                      .owner = owner});
  layout_.add(module, owner, !modules_.back().handles.empty() || modules_.back().slots->movable());
  if (modules_.back().slots->movable()) movable_modules_.push_back(static_cast<uint32_t>(modules_.size() - 1));
  add_slots(module, /*buffers=*/false);
  add_slots(module, /*buffers=*/true);
}

void SwapPlan::add_slots(Module& module, bool buffers) {
  TensorRegistry& registry = buffers ? buffer_registry(module) : parameter_registry(module);
  for (uint32_t i = 0; i < registry.size(); ++i) {
    slots_.push_back({.entry = &registry[i].value(),
                      .module = static_cast<uint32_t>(modules_.size() - 1),
                      .first_member = 0,
                      .member_count = 0,
                      .is_buffer = buffers,
                      .reach = Reach::kUnknown});
    entry_names_.push_back(registry[i].key());
  }
}

void SwapPlan::add_names(const PlannedModule& planned, const std::string& path) {
  const uint32_t end = planned.first_slot + planned.parameter_count + planned.buffer_count;
  for (uint32_t slot = planned.first_slot; slot < end; ++slot) {
    names_.insert(join_path(path, entry_names_[slot]));
    slot_of_name_.push_back(slot);
  }
}

absl::Span<const std::string> SwapPlan::entry_names(const PlannedModule& planned, bool buffers) const {
  const std::string* const first = entry_names_.data() + planned.first_slot;
  return buffers ? absl::MakeSpan(first + planned.parameter_count, planned.buffer_count)
                 : absl::MakeSpan(first, planned.parameter_count);
}

// The rules, for each member handle:
//   1. It holds a registered tensor: it belongs to the entry of its own module and name if that holds the same tensor.
//      If no entry has its name (an element of a vector): to one of its own module that does, one that no member has
//      been found for if there is one. Else to the first entry that does (C++ tying: `decoder->weight =
//      encoder->weight`).
//   2. It is empty: it belongs to the empty entry of its own module and name, if there is one.
//   3. Else it belongs to nothing.
// An entry that got a member is reached. One that got none is reached if its module is known to read the registry, or
// if its own member was tied to another entry by rule 1. If its own member holds a tensor that is registered nowhere
// the module contradicts itself; else no member is known.
void SwapPlan::match_members() {
  const auto members = find_members();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    slot.first_member = static_cast<uint32_t>(members_.size());
    slot.member_count = static_cast<uint32_t>(members[i].size());
    for (const Member& member : members[i]) {
      members_.push_back(member);
      twins_.emplace_back(slot.entry, member.handle);
    }
    if (!members[i].empty()) {
      slot.reach = Reach::kMembers;
    } else if (modules_[slot.module].slots->registry_only()) {
      slot.reach = Reach::kRegistry;
    }
  }
}

/// Applies rules 1 to 3. Of entries whose own member belongs elsewhere it notes the reach.
std::vector<std::vector<Member>> SwapPlan::find_members() {
  absl::flat_hash_map<const at::TensorImpl*, uint32_t> first_holder;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].entry->defined()) {
      first_holder.emplace(slots_[i].entry->unsafeGetTensorImpl(), i);
    }
  }
  std::vector<std::vector<Member>> members(slots_.size());
  /// Gives a member to the first entry that holds its tensor. Returns false if there is none.
  const auto give_to_holder = [&](const Member& member) {
    const at::Tensor& held = *member.handle;
    const auto holder = first_holder.find(held.unsafeGetTensorImpl());
    if (holder != first_holder.end()) {
      members[holder->second].push_back(member);
      return true;
    }
    strays_.push_back({&held, WeakTensor(held.getIntrusivePtr())});
    if (held.defined()) stray_tensors_.insert(held.unsafeGetTensorImpl());
    return false;
  };
  for (uint32_t m = 0; m < modules_.size(); ++m) {
    std::vector<Member> nameless;  // what they hold may have a member of its own name, which comes first
    visit_labelled(*modules_[m].slots, *modules_[m].module, [&](HandleLabel label, at::Tensor& handle) {
      const Member member{.module = m, .label = label, .handle = &handle};
      Slot* const own = own_slot(modules_[m], label.first);
      if (own == nullptr) {
        nameless.push_back(member);
      } else if (own->entry->is_same(handle)) {
        members[own - slots_.data()].push_back(member);
      } else {
        const bool has_holder = give_to_holder(member);
        if (!handle.defined() || own->reach == Reach::kRegistry) return;
        own->reach = has_holder ? Reach::kRegistry : Reach::kDetached;
        detached_members_.insert_or_assign(own, std::string(label.first));
      }
    });
    for (const Member& member : nameless) {
      if (const auto holder = holder_in(modules_[m], *member.handle, members)) {
        members[*holder].push_back(member);
      } else {
        give_to_holder(member);
      }
    }
  }
  return members;
}

/// Returns the entry of a module that holds what a member without a name of its own holds, one without members first.
std::optional<uint32_t> SwapPlan::holder_in(const PlannedModule& planned, const at::Tensor& handle,
                                            const std::vector<std::vector<Member>>& members) const {
  if (!handle.defined()) return std::nullopt;
  std::optional<uint32_t> holder;
  const uint32_t end = planned.first_slot + planned.parameter_count + planned.buffer_count;
  for (uint32_t i = planned.first_slot; i < end; ++i) {
    if (!slots_[i].entry->is_same(handle)) continue;
    if (members[i].empty()) return i;
    if (!holder) holder = i;
  }
  return holder;
}

/// Returns the entry that a data member is called after, or nullptr.
Slot* SwapPlan::own_slot(const PlannedModule& planned, std::string_view member) {
  const uint32_t end = planned.first_slot + planned.parameter_count + planned.buffer_count;
  for (uint32_t i = planned.first_slot; i < end; ++i) {
    if (is_name_of(member, entry_names_[i])) return &slots_[i];
  }
  return nullptr;
}

bool SwapPlan::is_valid(Module& root) const {
  // What lies below is reached through the layout, which knows modules by more than their addresses.
  const PlannedModule& known = modules_.front();
  const std::weak_ptr<Module> owner = root.weak_from_this();
  return is_of(root) && *known.type == typeid(root) && !owner.owner_before(known.owner) &&
         !known.owner.owner_before(owner) && layout_.is_unchanged() && has_same_handles();
}

bool SwapPlan::still_holds() const { return layout_.still_holds() && has_same_handles(); }

bool SwapPlan::has_same_handles() const {
  return std::all_of(movable_modules_.begin(), movable_modules_.end(), [this](uint32_t index) {
    const std::vector<at::Tensor*>& known = modules_[index].handles;
    std::size_t ordinal = 0;
    bool same = true;
    modules_[index].slots->visit(*modules_[index].module, [&](std::string_view, at::Tensor& handle) {
      same = same && ordinal < known.size() && known[ordinal] == &handle;
      ++ordinal;
    });
    return same && ordinal == known.size();
  });
}

bool SwapPlan::members_agree() const {
  for (const auto& [entry, member] : twins_) {
    if (!member->is_same(*entry)) return false;
  }
  const auto has_changed = [](const StrayHandle& stray) {
    return stray.address->unsafeGetTensorImpl() != stray.tensor._unsafe_get_target();
  };
  const auto holds_stray = [this](const Slot& slot) {
    return stray_tensors_.contains(slot.entry->unsafeGetTensorImpl());
  };
  return std::none_of(strays_.begin(), strays_.end(), has_changed) &&
         (stray_tensors_.empty() || std::none_of(slots_.begin(), slots_.end(), holds_stray));
}

void SwapPlan::reset_members() noexcept {
  for (const auto& [entry, member] : twins_) {
    if (!member->is_same(*entry)) *member = *entry;
  }
}

bool SwapPlan::has_ties() {
  const uint64_t writes = persistent_writes();
  if (seen_writes_ != writes) {
    has_ties_ = holds_ties();
    seen_writes_ = writes;
  }
  return has_ties_;
}

bool SwapPlan::holds_ties() const {
  absl::flat_hash_set<const at::TensorImpl*> held;
  held.reserve(slots_.size());
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    return slot.entry->defined() && !held.insert(slot.entry->unsafeGetTensorImpl()).second;
  });
}

bool SwapPlan::shares_module_with(const SwapPlan& other) const {
  return module_set_->common_with(*other.module_set_) != nullptr;
}

std::string SwapPlan::unknown_key_message(std::string_view key) const {
  std::ostringstream text;
  text << "\n  \"" << key << "\": the module has no parameter, buffer or sub-module of that name";
  if (module_of_path_.contains(key)) return text.str() + " to hold a tensor; it is a sub-module";
  std::string_view parent = parent_path(key);
  while (!module_of_path_.contains(parent)) parent = parent_path(parent);
  const PlannedModule& planned = modules_[module_of_path_.find(parent)->second];
  text << " (" << (parent.empty() ? "it" : "\"" + std::string(parent) + "\"") << " has:";
  const char* separator = " ";
  const auto list = [&](const std::string& name) {
    text << separator << name;
    separator = ", ";
  };
  for (const auto& name : entry_names(planned, /*buffers=*/false)) list(name);
  for (const auto& name : entry_names(planned, /*buffers=*/true)) list(name);
  for (const auto& item : child_registry(*planned.module)) list(item.key());
  text << (*separator == ' ' ? " nothing)" : ")");
  return text.str();
}

std::shared_ptr<const SlotList> SwapPlan::slots_for(const std::shared_ptr<const KeyTable>& keys,
                                                    std::string_view call) {
  for (const Mapping& mapping : mappings_) {
    if (mapping.keys == keys) return mapping.slots;
  }
  std::vector<uint32_t> indices;
  std::string problems;
  std::size_t count = 0;
  for (std::size_t i = 0; i < keys->size(); ++i) {
    if (const auto position = names_.find(keys->path(i))) {
      indices.push_back(slot_of_name_[*position]);
    } else {
      problems += unknown_key_message(keys->path(i));
      ++count;
    }
  }
  // Not with Module::name, which writes to the module: concurrent calls may be here.
  TORCH_CHECK_INDEX(count == 0, misfit_message(call, count, c10::demangle(modules_.front().type->name()), problems));
  return remember(keys, std::move(indices), /*positions=*/{}).slots;
}

std::shared_ptr<const KeyTable> SwapPlan::keys_for(const std::vector<uint32_t>& positions) {
  for (const Mapping& mapping : mappings_) {
    if (!positions.empty() && mapping.positions == positions) return mapping.keys;
  }
  auto keys = std::make_shared<KeyTable>();
  std::vector<uint32_t> indices;
  for (const uint32_t position : positions) {
    keys->insert(names_.path(position));
    indices.push_back(slot_of_name_[position]);
  }
  return remember(keys, std::move(indices), positions).keys;
}

const SwapPlan::Mapping& SwapPlan::remember(const std::shared_ptr<const KeyTable>& keys, std::vector<uint32_t> indices,
                                            std::vector<uint32_t> positions) {
  if (mappings_.size() == kRememberedMappings) mappings_.erase(mappings_.begin());
  auto slots = std::make_shared<SlotList>(list_of(std::move(indices)));
  return mappings_.emplace_back(Mapping{.keys = keys, .slots = std::move(slots), .positions = std::move(positions)});
}

SlotList SwapPlan::list_of(std::vector<uint32_t> indices) const {
  SlotList list{.indices = std::move(indices), .handles = {}};
  for (const uint32_t index : list.indices) {
    const Slot& slot = slots_[index];
    list.handles.push_back(slot.entry);
    for (const Member& member : members(slot)) list.handles.push_back(member.handle);
  }
  return list;
}

namespace {

/// The plans of one thread, oldest first.
std::vector<std::shared_ptr<SwapPlan>>& remembered_plans() {
  thread_local std::vector<std::shared_ptr<SwapPlan>> plans;
  return plans;
}

/// Counts the plans that this thread has made.
uint64_t& plan_count() {
  thread_local uint64_t count = 0;
  return count;
}

std::atomic<uint64_t> write_count = 0;

}  // namespace

std::shared_ptr<SwapPlan> remembered_plan(const Module& root) {
  auto& plans = remembered_plans();
  const auto known = std::find_if(plans.rbegin(), plans.rend(), [&](const auto& plan) { return plan->is_of(root); });
  return known == plans.rend() ? nullptr : *known;
}

std::shared_ptr<SwapPlan> plan_for(Module& root) {
  auto& plans = remembered_plans();
  if (auto known = remembered_plan(root)) {
    if (is_current(*known, root)) return known;
    std::erase(plans, known);
  }
  auto plan = std::make_shared<SwapPlan>(root, ++plan_count());
  if (plans.size() == kRememberedPlans) plans.erase(plans.begin());
  plans.push_back(plan);
  return plan;
}

uint64_t newest_plan() { return plan_count(); }

uint64_t persistent_writes() { return write_count.load(std::memory_order_relaxed); }

void note_persistent_write() { write_count.fetch_add(1, std::memory_order_relaxed); }

void forget_plans_since(uint64_t number, const SwapPlan& plan) {
  auto& plans = remembered_plans();
  if (plans.empty() || plans.back()->number() <= number) return;
  std::erase_if(plans, [&](const auto& known) { return known->number() > number && known->shares_module_with(plan); });
}

}  // namespace graft::internal
