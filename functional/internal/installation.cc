#include "functional/internal/installation.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "functional/internal/grad_alias.h"

namespace graft::internal {
namespace {

using torch::nn::Module;

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

Installation::Installation(Module& module, absl::Span<const TensorDict* const> trees, const InstallRules& rules)
    : module_(module), plan_(plan_for(module)), newest_plan_(newest_plan()), keys_(trees.front()->keys()) {
  collect(trees, rules);
  check_conflicts(rules);
  if (rules.tie && plan_->has_ties()) add_ties(rules);
  const std::vector<at::Tensor> aliases = make_aliases();
  reserve_old();
  install();
}

Installation::~Installation() {
  if (!kept_) restore();
}

void Installation::keep() {
  kept_ = true;
  forget_plans_since(0, *plan_);
}

/// Lists what goes where, and checks that it fits.
void Installation::collect(absl::Span<const TensorDict* const> trees, const InstallRules& rules) {
  bool all_fit = true;
  for (const TensorDict* tree : trees) {
    const std::vector<uint32_t>& slots = plan_->slots_for(tree->keys(), rules.call);
    changes_.reserve(changes_.size() + slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      all_fit &= add_change(slots[i], tree->values()[i], tree->keys()->path(i), rules);
    }
  }
  if (!all_fit) report(rules);
}

/// Returns whether the leaf fits.
bool Installation::add_change(uint32_t index, const at::Tensor& leaf, const std::string& name,
                              const InstallRules& rules) {
  const Slot& slot = plan_->slots()[index];
  const bool aliased = needs_alias(slot, leaf, rules);
  changes_.push_back({.leaf = &leaf, .name = &name, .slot = index, .old_entry = 0, .needs_alias = aliased});
  return fits(slot, leaf, aliased, rules);
}

void Installation::report(const InstallRules& rules) const {
  std::ostringstream problems;
  std::size_t count = 0;
  for (const Change& change : changes_) {
    if (fits(slot_of(change), *change.leaf, change.needs_alias, rules)) continue;
    describe_misfit(*plan_, slot_of(change), *change.name, *change.leaf, rules, problems);
    ++count;
  }
  TORCH_CHECK_VALUE(false, rules.call, ": ", count, count == 1 ? " leaf does" : " leaves do", " not fit module ",
                    module_.name(), ":", problems.str(), "\nThe module is unchanged.");
}

/// One slot may be named twice (a shared module, or two trees), and with ties one parameter, but only with one leaf.
void Installation::check_conflicts(const InstallRules& rules) const {
  if (plan_->is_one_to_one() && changes_.size() == keys_->size() && !(rules.tie && plan_->has_ties())) return;
  absl::flat_hash_map<const void*, const Change*> first_change;
  std::ostringstream problems;
  for (const Change& change : changes_) {
    const Slot& slot = slot_of(change);
    const void* const identity =
        rules.tie && slot.entry->defined() ? static_cast<const void*>(slot.entry->unsafeGetTensorImpl()) : &slot;
    const auto [known, is_new] = first_change.emplace(identity, &change);
    if (is_new || known->second->leaf->is_same(*change.leaf)) continue;
    problems << "\n  \"" << *known->second->name << "\" and \"" << *change.name
             << "\" stand for one parameter, but were given two different tensors";
  }
  TORCH_CHECK_VALUE(problems.str().empty(), rules.call, ": conflicting leaves for module ", module_.name(), ":",
                    problems.str(), "\nThe module is unchanged.");
}

/// Entries without a leaf that hold the same tensor as one with a leaf get that leaf.
void Installation::add_ties(const InstallRules& rules) {
  std::vector<bool> has_leaf(plan_->slots().size());
  absl::flat_hash_map<const at::TensorImpl*, Change> change_of;
  for (const Change& change : changes_) {
    has_leaf[change.slot] = true;
    const at::Tensor& old_value = *slot_of(change).entry;
    if (old_value.defined()) change_of.emplace(old_value.unsafeGetTensorImpl(), change);
  }
  bool all_fit = true;
  for (uint32_t i = 0; i < plan_->slots().size(); ++i) {
    const at::Tensor& old_value = *plan_->slots()[i].entry;
    if (has_leaf[i] || !old_value.defined()) continue;
    const auto tied = change_of.find(old_value.unsafeGetTensorImpl());
    if (tied != change_of.end()) all_fit &= add_change(i, *tied->second.leaf, *tied->second.name, rules);
  }
  if (!all_fit) report(rules);
}

/// Makes the aliases that plain leaves enter as, and points the changes to them. A leaf that is used twice has one
/// alias, so that what was tied stays tied.
std::vector<at::Tensor> Installation::make_aliases() {
  std::vector<at::Tensor> aliases;
  absl::flat_hash_map<const at::TensorImpl*, const at::Tensor*> alias_of;
  const bool may_repeat = plan_->has_ties() || !plan_->is_one_to_one();
  for (Change& change : changes_) {
    if (!change.needs_alias) continue;
    if (aliases.empty()) aliases.reserve(changes_.size());  // so that it never moves
    const at::TensorImpl* const leaf = change.leaf->unsafeGetTensorImpl();
    const auto known = may_repeat ? alias_of.find(leaf) : alias_of.end();
    if (known != alias_of.end()) {
      change.leaf = known->second;
      continue;
    }
    change.leaf = &aliases.emplace_back(alias_with_grad(*change.leaf));
    if (may_repeat) alias_of.emplace(leaf, change.leaf);
  }
  return aliases;
}

void Installation::reserve_old() {
  std::size_t handles = 0;
  for (Change& change : changes_) {
    change.old_entry = static_cast<uint32_t>(handles);
    handles += 1 + slot_of(change).member_count;
  }
  old_.reserve(handles);
}

// Old handles are moved out and back, which saves their reference counts: these are most of what a swap costs.
void Installation::install() noexcept {
  for (const Change& change : changes_) {
    const Slot& slot = slot_of(change);
    old_.push_back(std::exchange(*slot.entry, *change.leaf));
    std::for_each(plan_->members_begin(slot), plan_->members_end(slot),
                  [&](const MemberHandle& member) { old_.push_back(std::exchange(*member.address, *change.leaf)); });
  }
}

// Backwards, so that a slot that was written twice ends on its first old value.
void Installation::restore() noexcept {
  forget_plans_since(newest_plan_, *plan_);
  if (!plan_->is_valid(module_)) {
    restore_changed_module();
    return;
  }
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
    const Slot& slot = slot_of(*change);
    at::Tensor* old_handle = &old_[change->old_entry];
    *slot.entry = std::move(*old_handle);
    std::for_each(plan_->members_begin(slot), plan_->members_end(slot),
                  [&](const MemberHandle& member) { *member.address = std::move(*++old_handle); });
  }
}

/// The body registered, unregistered or replaced something, so addresses of entries no longer hold. Members are found
/// again by their place in the visiting order, entries by name.
void Installation::restore_changed_module() {
  struct Todo {
    absl::flat_hash_map<std::string, at::Tensor> parameters, buffers;
    absl::flat_hash_map<uint32_t, at::Tensor> members;
  };
  std::vector<Todo> todo(plan_->modules().size());
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
    const Slot& slot = slot_of(*change);
    const at::Tensor& old_value = old_[change->old_entry];
    Todo& owner = todo[slot.module];
    (slot.is_buffer ? owner.buffers : owner.parameters).insert_or_assign(plan_->entry_name(slot), old_value);
    std::for_each(plan_->members_begin(slot), plan_->members_end(slot), [&](const MemberHandle& member) {
      todo[member.module].members.insert_or_assign(member.ordinal, old_value);
    });
  }
  for (std::size_t m = 0; m < todo.size(); ++m) {
    const PlannedModule& planned = plan_->modules()[m];
    const std::shared_ptr<Module> alive = planned.owner.lock();
    if (alive == nullptr && planned.module != &module_) continue;  // the body dropped it
    restore_registry(registry_of(planned, /*is_buffer=*/false), plan_->entry_names(planned, /*buffers=*/false),
                     todo[m].parameters);
    restore_registry(registry_of(planned, /*is_buffer=*/true), plan_->entry_names(planned, /*buffers=*/true),
                     todo[m].buffers);
    uint32_t ordinal = 0;
    planned.slots->visit(*planned.module, [&](std::string_view, at::Tensor& handle) {
      const auto old_value = todo[m].members.find(ordinal++);
      if (old_value != todo[m].members.end()) handle = old_value->second;
    });
  }
}

std::vector<std::pair<at::Tensor, at::Tensor>> Installation::redirects() const {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  for (const Change& change : changes_) {
    const Slot& slot = slot_of(change);
    if (slot.reach == Reach::kUnknown) pairs.emplace_back(old_[change.old_entry], *slot.entry);
  }
  return pairs;
}

TensorDict Installation::old_values() const {
  std::vector<at::Tensor> values;
  values.reserve(keys_->size());
  for (std::size_t i = 0; i < keys_->size(); ++i) values.push_back(old_[first_change_of(i).old_entry]);
  return values_by_name(values);
}

/// A shared module has several names for one slot; only the first change of a slot knows what was there before.
const Installation::Change& Installation::first_change_of(std::size_t position) const {
  if (plan_->is_one_to_one()) return changes_[position];
  return *std::find_if(changes_.begin(), changes_.end(),
                       [&](const Change& change) { return change.slot == changes_[position].slot; });
}

TensorDict Installation::current_values() const {
  std::vector<at::Tensor> values;
  values.reserve(keys_->size());
  for (std::size_t i = 0; i < keys_->size(); ++i) {
    const Slot& slot = slot_of(changes_[i]);
    const at::Tensor* const value =
        registry_of(plan_->modules()[slot.module], slot.is_buffer).find(plan_->entry_name(slot));
    values.push_back(value == nullptr ? at::Tensor() : *value);
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
