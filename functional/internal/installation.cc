#include "functional/internal/installation.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "absl/base/attributes.h"
#include "absl/container/flat_hash_map.h"

namespace graft::internal {
namespace {

using torch::nn::Module;

/// Those of this thread that hold leaves. Within one, entries may be tied that are not at other times.
thread_local int open_installations = 0;

/// Exchanges what two handles hold. (std::swap would pass by the undefined tensor.)
void swap_handles(at::Tensor& left, at::Tensor& right) noexcept {
  using Pointer = c10::intrusive_ptr<at::TensorImpl, c10::UndefinedTensorImpl>;
  const_cast<Pointer&>(left.getIntrusivePtr()).swap(const_cast<Pointer&>(right.getIntrusivePtr()));
}

TensorRegistry& registry_of(const PlannedModule& planned, bool is_buffer) {
  return is_buffer ? buffer_registry(*planned.module) : parameter_registry(*planned.module);
}

/// Puts back entries that are gone, and the old order if it has changed. Entries of other names follow.
void restore_registry(TensorRegistry& registry, absl::Span<const std::string> names,
                      const absl::flat_hash_map<std::string, at::Tensor>& old_values) {
  TensorRegistry restored;
  for (const std::string& name : names) {
    const auto old_value = old_values.find(name);
    if (old_value != old_values.end()) {
      restored.insert(name, old_value->second);
    } else if (const at::Tensor* present = registry.find(name)) {
      restored.insert(name, *present);
    }
  }
  for (const auto& item : registry.items()) {
    if (!restored.contains(item.key())) restored.insert(item.key(), item.value());
  }
  registry = std::move(restored);
}

}  // namespace

Installation::Installation(Module& module, Trees trees, const InstallRules& rules)
    : module_(module),
      claim_(module, ClaimKind::kExclusive, rules.call),
      plan_(&claim_.plan()),
      newest_plan_(newest_plan()),
      writes_before_(persistent_writes()),
      keys_(trees.front()->keys()),
      resets_members_(rules.reset_members) {
  Parts parts;
  for (const TensorDict* tree : trees) parts.push_back({tree, plan_->slots_for(tree->keys(), rules.call)});
  if (rules.strict) check_complete(requests_of(parts), rules);
  const bool has_ties = open_installations > 0 ? plan_->holds_ties() : plan_->has_ties();
  LeafRequests ties;
  if (has_ties || names_a_slot_twice(parts)) {
    const LeafRequests requests = requests_of(parts);
    check_fit(requests, rules);
    check_one_leaf_each(requests, rules);
    if (rules.tie && has_ties) ties = ties_of(requests);
  }
  list_slots(parts, ties);
  old_.reserve(slots_->handles.size());
  try {
    install_all(parts, ties, rules, has_ties);
    change_contents(parts, rules);
  } catch (...) {
    restore();
    throw;
  }
  ++open_installations;
}

Installation::~Installation() {
  if (kept_) return;
  note_end();
  restore();
}

void Installation::keep() {
  kept_ = true;
  note_end();
  contents_.keep();
  note_persistent_write();
}

/// A guard may end on another thread than it began on. That one looks ties up ever after, which costs time alone.
void Installation::note_end() const {
  if (claim_.is_of_this_thread()) {
    --open_installations;
  } else {
    note_persistent_write();
  }
}

bool Installation::names_a_slot_twice(const Parts& parts) const {
  if (parts.size() == 1 && plan_->is_one_to_one()) return false;
  std::vector<bool> is_named(plan_->slots().size());
  for (const Part& part : parts) {
    for (const uint32_t slot : part.slots->indices) {
      if (is_named[slot]) return true;
      is_named[slot] = true;
    }
  }
  return false;
}

LeafRequests Installation::requests_of(const Parts& parts) const {
  LeafRequests requests;
  for (const auto& [tree, slots] : parts) {
    for (std::size_t i = 0; i < tree->size(); ++i) {
      requests.push_back({slots->indices[i], &tree->values()[i], &tree->keys()->path(i)});
    }
  }
  return requests;
}

void Installation::check_complete(const LeafRequests& requests, const InstallRules& rules) const {
  check_strict(rules, module_.name(), plan_->names(), plan_->slot_of_name(),
               slots_with_leaf(requests, plan_->slots().size()),
               [this](uint32_t slot) { return plan_->slots()[slot].entry->defined(); });
}

/// One slot may be named twice (a shared module, or two trees), and where names stand for one tensor that tensor, but
/// only with one leaf.
void Installation::check_one_leaf_each(const LeafRequests& requests, const InstallRules& rules) const {
  check_conflicts(rules.call, module_.name(), requests, [&](uint32_t index) -> const void* {
    const Slot& slot = plan_->slots()[index];
    const bool is_one_tensor = slot.entry->defined() && (rules.tie || changes_content(slot, rules));
    return is_one_tensor ? static_cast<const void*>(slot.entry->unsafeGetTensorImpl()) : &slot;
  });
}

LeafRequests Installation::ties_of(const LeafRequests& requests) const {
  return tied_requests(requests, plan_->slots().size(), [this](uint32_t slot) { return *plan_->slots()[slot].entry; });
}

void Installation::list_slots(const Parts& parts, const LeafRequests& ties) {
  slots_ = parts.front().slots;
  if (parts.size() == 1 && ties.empty()) return;
  std::vector<uint32_t> all;
  for (const Part& part : parts) all.insert(all.end(), part.slots->indices.begin(), part.slots->indices.end());
  for (const LeafRequest& tie : ties) all.push_back(tie.slot);
  slots_ = std::make_shared<SlotList>(plan_->list_of(std::move(all)));
}

/// Checks and installs in one pass: most of what a swap costs is to reach each tensor, so it is reached once.
void Installation::install_all(const Parts& parts, const LeafRequests& ties, const InstallRules& rules, bool has_ties) {
  AliasMap known_aliases;
  AliasMap* const aliases = has_ties || !plan_->is_one_to_one() ? &known_aliases : nullptr;
  const auto install_part = [&](const Part& part) {
    return install(part.slots->indices, part.tree->values(), rules, aliases);
  };
  const auto install_tie = [&](const LeafRequest& tie) {
    return install(absl::MakeSpan(&tie.slot, 1), absl::MakeSpan(tie.leaf, 1), rules, aliases);
  };
  if (std::all_of(parts.begin(), parts.end(), install_part) && std::all_of(ties.begin(), ties.end(), install_tie)) {
    return;
  }
  restore();
  LeafRequests requests = requests_of(parts);
  requests.insert(requests.end(), ties.begin(), ties.end());
  check_fit(requests, rules);
}

/// Returns false at a leaf that does not fit.
bool Installation::install(absl::Span<const uint32_t> slots, absl::Span<const at::Tensor> leaves,
                           const InstallRules& rules, AliasMap* aliases) {
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = plan_->slots()[slots[i]];
    const at::Tensor& leaf = leaves[i];
    const bool aliased = needs_alias(slot, leaf, rules);
    if (!fits(slot, leaf, aliased, rules)) return false;
    const bool stays = changes_content(slot, rules);
    if (aliased && !stays) {
      put(slot, aliases == nullptr ? alias_with_grad(leaf) : alias_with_grad(leaf, *aliases));
    } else {
      put(slot, stays ? *slot.entry : leaf);
    }
  }
  return true;
}

/// Old handles are moved out and back, which saves their reference counts.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline void Installation::put(const Slot& slot, const at::Tensor& leaf) noexcept {
  at::Tensor* const* handle = slots_->handles.data() + old_.size();
  for (uint32_t n = 1 + slot.member_count; n > 0; --n, ++handle) swap_handles(old_.emplace_back(leaf), **handle);
}

void Installation::change_contents(const Parts& parts, const InstallRules& rules) {
  if (!rules.inplace && !rules.alias) return;
  ContentSwap::Changes changes;
  for (const auto& [index, leaf, name] : requests_of(parts)) {
    const Slot& slot = plan_->slots()[index];
    if (changes_content(slot, rules)) changes.emplace_back(*slot.entry, *leaf);
  }
  if (rules.inplace) {
    contents_.copy(changes, rules.non_blocking);
  } else {
    contents_.alias(changes);
  }
}

/// Says of every leaf that does not fit why. (Of a module that is as it was.)
void Installation::check_fit(const LeafRequests& requests, const InstallRules& rules) const {
  std::ostringstream problems;
  std::size_t count = 0;
  for (const auto& [index, leaf, name] : requests) {
    const Slot& slot = plan_->slots()[index];
    if (fits(slot, *leaf, needs_alias(slot, *leaf, rules), rules)) continue;
    describe_misfit(*plan_, slot, *name, *leaf, rules, problems);
    ++count;
  }
  TORCH_CHECK_VALUE(count == 0, misfit_message(rules.call, count, module_.name(), problems.str()));
}

// Backwards, so that a slot that was written twice ends on its first old value.
void Installation::restore() noexcept {
  contents_.restore();
  forget_plans_since(newest_plan_, *plan_);
  if (persistent_writes() != writes_before_) note_persistent_write();  // for those who looked within the scope
  if (plan_->still_holds()) {
    for (std::size_t i = old_.size(); i-- > 0;) swap_handles(old_[i], *slots_->handles[i]);
    if (resets_members_) plan_->reset_members();
  } else {
    restore_changed_module();
  }
  old_.clear();
}

/// The body registered, unregistered or replaced something, so addresses of entries no longer hold. Members are found
/// again by their labels, entries by name.
void Installation::restore_changed_module() {
  struct Todo {
    absl::flat_hash_map<std::string, at::Tensor> parameters, buffers;
    absl::flat_hash_map<HandleLabel, at::Tensor> members;
  };
  std::vector<Todo> todo(plan_->modules().size());
  visit_old([&](const Slot& slot, const at::Tensor& old_value) {
    Todo& owner = todo[slot.module];
    (slot.is_buffer ? owner.buffers : owner.parameters).emplace(plan_->entry_name(slot), old_value);
    for (const Member& member : plan_->members(slot)) todo[member.module].members.emplace(member.label, old_value);
  });
  for (std::size_t m = 0; m < todo.size(); ++m) {
    const PlannedModule& planned = plan_->modules()[m];
    if (is_gone(planned.owner)) continue;  // the body dropped it
    restore_registry(registry_of(planned, /*is_buffer=*/false), plan_->entry_names(planned, /*buffers=*/false),
                     todo[m].parameters);
    restore_registry(registry_of(planned, /*is_buffer=*/true), plan_->entry_names(planned, /*buffers=*/true),
                     todo[m].buffers);
    visit_labelled(*planned.slots, *planned.module, [&](HandleLabel label, at::Tensor& handle) {
      const auto old_value = todo[m].members.find(label);
      if (old_value != todo[m].members.end()) handle = old_value->second;
    });
  }
}

/// Shows what each entry held. A slot that was written twice comes twice, first with its first old value.
void Installation::visit_old(absl::FunctionRef<void(const Slot&, const at::Tensor&)> visitor) const {
  const at::Tensor* old_entry = old_.data();
  for (const uint32_t index : slots_->indices) {
    if (old_entry == old_.data() + old_.size()) return;
    const Slot& slot = plan_->slots()[index];
    visitor(slot, *old_entry);
    old_entry += 1 + slot.member_count;
  }
}

Redirects Installation::take_redirects() {
  Redirects::Pairs needed, doubtful;
  doubtful_.clear();
  visit_old([&](const Slot& slot, const at::Tensor& old_value) {
    if (!old_value.defined() || slot.entry->is_same(old_value)) return;
    if (has_unknown_handle(slot)) {
      needed.emplace_back(old_value, *slot.entry);
    } else if (slot.hidden == HiddenHandles::kUnknown && can_stand_for(*slot.entry, old_value)) {
      doubtful.emplace_back(old_value, *slot.entry);
      doubtful_.emplace_back(&slot, old_value.unsafeGetTensorImpl());
    }
  });
  return Redirects(std::move(needed), doubtful);
}

void Installation::note_met(absl::FunctionRef<bool(const at::TensorImpl* old_tensor)> was_met) {
  for (const auto& [slot, old_tensor] : doubtful_) {
    plan_->set_hidden(*slot, was_met(old_tensor) ? HiddenHandles::kSome : HiddenHandles::kNone);
  }
}

TensorDict Installation::old_values() const {
  absl::flat_hash_map<const Slot*, const at::Tensor*> old_value_of;
  visit_old([&](const Slot& slot, const at::Tensor& old_value) { old_value_of.emplace(&slot, &old_value); });
  std::vector<at::Tensor> values;
  values.reserve(keys_->size());
  for (std::size_t i = 0; i < keys_->size(); ++i) {
    const at::Tensor& held = *old_value_of.at(&plan_->slots()[slots_->indices[i]]);
    const at::Tensor* const content = contents_.old_content(held);
    values.push_back(content == nullptr ? held : *content);
  }
  return values_by_name(values);
}

/// What the member holds that forward reads, for a body may assign to it; what the entry holds where there is none.
at::Tensor Installation::current_value(const Slot& slot, bool plan_holds) const {
  if (plan_holds) return slot.member_count == 0 ? *slot.entry : *plan_->members(slot).front().handle;
  const PlannedModule& planned = plan_->modules()[slot.module];
  if (is_gone(planned.owner)) return {};
  const at::Tensor* const value = registry_of(planned, slot.is_buffer).find(plan_->entry_name(slot));
  return value == nullptr ? at::Tensor() : *value;
}

TensorDict Installation::current_values() const {
  const bool plan_holds = plan_->still_holds();
  std::vector<at::Tensor> values;
  values.reserve(keys_->size());
  for (std::size_t i = 0; i < keys_->size(); ++i) {
    values.push_back(current_value(plan_->slots()[slots_->indices[i]], plan_holds));
  }
  return values_by_name(values);
}

TensorDict Installation::values_by_name(const std::vector<at::Tensor>& values) const {
  const auto is_defined = [](const at::Tensor& value) { return value.defined(); };
  if (std::all_of(values.begin(), values.end(), is_defined)) return TensorDict(keys_, values);
  TensorDict tree;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i].defined()) tree.set(keys_->path(i), values[i]);
  }
  return tree;
}

}  // namespace graft::internal
