#include "functional/internal/installation.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "functional/internal/leaf_kind.h"

namespace graft::internal {
namespace {

using torch::nn::Module;

/// A plain leaf that goes where a tensor with `requires_grad` was is replaced by an alias with that flag.
bool needs_alias(const Slot& slot, const at::Tensor& leaf) {
  return !slot.is_buffer && slot.entry->defined() && slot.entry->requires_grad() && !leaf.requires_grad() &&
         !carries_derivatives(leaf);
}

/// Another tensor object over the leaf's storage that shares its version counter, so that autograd still notices
/// writes through either. `detach` would be seen by active transforms, `variable_data` has a counter of its own.
at::Tensor alias_with_grad(const at::Tensor& leaf) {
  at::TensorImpl* impl = leaf.unsafeGetTensorImpl();
  at::Tensor alias(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
  alias.set_requires_grad(true);
  return alias;
}

bool members_agree(const SwapPlan& plan, const Slot& slot) {
  return std::all_of(plan.members_begin(slot), plan.members_end(slot),
                     [&](const MemberHandle& member) { return member.address->is_same(*slot.entry); });
}

bool is_refused(const Slot& slot, const InstallRules& rules) {
  if (slot.reach == Reach::kDetached) return true;
  return slot.reach == Reach::kUnknown && !(rules.redirect && slot.entry->defined());
}

bool has_wrong_shape(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  const bool checked = rules.check_shapes || slot.reach == Reach::kUnknown;
  return checked && slot.entry->defined() && !slot.entry->sizes().equals(leaf.sizes());
}

/// Sizes, dtype and device are read without the dispatcher, where a redirect cannot answer.
bool has_wrong_type(const Slot& slot, const at::Tensor& leaf) {
  return slot.reach == Reach::kUnknown &&
         (slot.entry->scalar_type() != leaf.scalar_type() || slot.entry->device() != leaf.device());
}

bool cannot_require_grad(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  return rules.preserve_flags && needs_alias(slot, leaf) && !c10::isFloatingType(leaf.scalar_type()) &&
         !c10::isComplexType(leaf.scalar_type());
}

bool fits(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  return !is_refused(slot, rules) && !has_wrong_shape(slot, leaf, rules) && !has_wrong_type(slot, leaf) &&
         !cannot_require_grad(slot, leaf, rules);
}

void describe_refusal(const SwapPlan& plan, const Slot& slot, std::ostream& text) {
  const PlannedModule& owner = plan.modules()[slot.module];
  const std::string type = c10::demangle(owner.type.name());
  if (slot.reach == Reach::kDetached) {
    text << "its member " << slot.member_name << " of " << type
         << " holds another tensor, which is registered nowhere (assign to the data of the parameter, or register the "
            "new tensor)";
  } else {
    text << "no member of " << type << " is known to hold it; write GRAFT_SLOTS(" << type
         << ", ...) with the member that forward reads, or use functional_call, which needs no annotation";
  }
}

void describe_misfit(const SwapPlan& plan, const Slot& slot, const std::string& name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text) {
  text << "\n  \"" << name << "\": ";
  if (is_refused(slot, rules)) {
    describe_refusal(plan, slot, text);
  } else if (has_wrong_shape(slot, leaf, rules)) {
    text << "shape " << leaf.sizes() << ", expected " << slot.entry->sizes();
  } else if (has_wrong_type(slot, leaf)) {
    text << leaf.scalar_type() << " on " << leaf.device() << ", expected " << slot.entry->scalar_type() << " on "
         << slot.entry->device() << ", because no member is known to hold it";
  } else {
    text << leaf.scalar_type() << ", expected a floating point or complex type, because the parameter requires grad";
  }
}

TensorRegistry& registry_of(const PlannedModule& planned, bool is_buffer) {
  return is_buffer ? buffer_registry(*planned.module) : parameter_registry(*planned.module);
}

const std::string& entry_name(const PlannedModule& planned, const Slot& slot) {
  return slot.is_buffer ? planned.buffer_names[slot.position] : planned.parameter_names[slot.position];
}

/// Puts back entries that are gone, and the old order if it has changed. Entries of other names follow.
void restore_registry(TensorRegistry& registry, const std::vector<std::string>& names,
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
    : module_(module), plan_(plan_for(module)) {
  if (!collect(trees, rules)) {
    // Some member was assigned to since the plan was made.
    forget_plan(module);
    plan_ = plan_for(module);
    TORCH_INTERNAL_ASSERT(collect(trees, rules), "a new plan contradicts its module");
  }
  check_conflicts(rules);
  if (rules.tie) add_ties(rules);
  if (rules.preserve_flags) prepare_flags();
  install();
}

Installation::~Installation() {
  if (!kept_) restore();
}

void Installation::keep() { kept_ = true; }

/// Lists what goes where. Returns false if the plan turns out to be out of date.
bool Installation::collect(absl::Span<const TensorDict* const> trees, const InstallRules& rules) {
  changes_.clear();
  keys_ = trees.front()->keys();
  bool all_fit = true;
  for (const TensorDict* tree : trees) {
    const std::vector<uint32_t>& slots = plan_->slots_for(tree->keys(), rules.call);
    changes_.reserve(changes_.size() + slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const Slot& slot = plan_->slots()[slots[i]];
      const at::Tensor& leaf = tree->values()[i];
      if (!members_agree(*plan_, slot)) return false;
      all_fit = all_fit && fits(slot, leaf, rules);
      changes_.push_back({slots[i], &tree->keys()->path(i), leaf});
    }
  }
  if (!all_fit) report(rules);
  return true;
}

void Installation::report(const InstallRules& rules) const {
  std::ostringstream problems;
  std::size_t count = 0;
  for (const Change& change : changes_) {
    const Slot& slot = plan_->slots()[change.slot];
    if (fits(slot, change.value, rules)) continue;
    describe_misfit(*plan_, slot, *change.name, change.value, rules, problems);
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
    const Slot& slot = plan_->slots()[change.slot];
    const void* const identity =
        rules.tie && slot.entry->defined() ? static_cast<const void*>(slot.entry->unsafeGetTensorImpl()) : &slot;
    const auto [known, is_new] = first_change.emplace(identity, &change);
    if (is_new || known->second->value.is_same(change.value)) continue;
    problems << "\n  \"" << *known->second->name << "\" and \"" << *change.name
             << "\" stand for one parameter, but were given two different tensors";
  }
  TORCH_CHECK_VALUE(problems.str().empty(), rules.call, ": conflicting leaves for module ", module_.name(), ":",
                    problems.str(), "\nThe module is unchanged.");
}

/// Entries without a leaf that hold the same tensor as one with a leaf get that leaf.
void Installation::add_ties(const InstallRules& rules) {
  if (changes_.size() >= plan_->slots().size()) return;
  std::vector<bool> has_leaf(plan_->slots().size());
  absl::flat_hash_map<const at::TensorImpl*, Change> change_of;
  for (const Change& change : changes_) {
    has_leaf[change.slot] = true;
    const at::Tensor& old_value = *plan_->slots()[change.slot].entry;
    if (old_value.defined()) change_of.emplace(old_value.unsafeGetTensorImpl(), change);
  }
  for (uint32_t i = 0; i < plan_->slots().size(); ++i) {
    const Slot& slot = plan_->slots()[i];
    if (has_leaf[i] || !slot.entry->defined()) continue;
    const auto tied = change_of.find(slot.entry->unsafeGetTensorImpl());
    if (tied == change_of.end()) continue;
    changes_.push_back({i, tied->second.name, tied->second.value});
    if (!fits(slot, tied->second.value, rules)) report(rules);
  }
}

void Installation::prepare_flags() {
  // One alias for a leaf that is used twice, so that what was tied stays tied.
  absl::flat_hash_map<const at::TensorImpl*, at::Tensor> aliases;
  const bool may_repeat = plan_->has_ties() || !plan_->is_one_to_one();
  for (Change& change : changes_) {
    if (!needs_alias(plan_->slots()[change.slot], change.value)) continue;
    if (!may_repeat) {
      change.value = alias_with_grad(change.value);
      continue;
    }
    at::Tensor& alias = aliases[change.value.unsafeGetTensorImpl()];
    if (!alias.defined()) alias = alias_with_grad(change.value);
    change.value = alias;
  }
}

void Installation::install() noexcept {
  for (Change& change : changes_) {
    const Slot& slot = plan_->slots()[change.slot];
    std::swap(*slot.entry, change.value);
    std::for_each(plan_->members_begin(slot), plan_->members_end(slot),
                  [&](const MemberHandle& member) { *member.address = *slot.entry; });
  }
}

// Backwards, so that a slot that was written twice ends on its first old value.
void Installation::restore() noexcept {
  if (!plan_->is_valid(module_)) {
    restore_changed_module();
    return;
  }
  for (auto change = changes_.rbegin(); change != changes_.rend(); ++change) {
    const Slot& slot = plan_->slots()[change->slot];
    *slot.entry = std::move(change->value);
    std::for_each(plan_->members_begin(slot), plan_->members_end(slot),
                  [&](const MemberHandle& member) { *member.address = *slot.entry; });
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
    const Slot& slot = plan_->slots()[change->slot];
    Todo& owner = todo[slot.module];
    (slot.is_buffer ? owner.buffers : owner.parameters)
        .insert_or_assign(entry_name(plan_->modules()[slot.module], slot), change->value);
    std::for_each(plan_->members_begin(slot), plan_->members_end(slot), [&](const MemberHandle& member) {
      todo[member.module].members.insert_or_assign(member.ordinal, change->value);
    });
  }
  for (std::size_t m = 0; m < todo.size(); ++m) {
    const PlannedModule& planned = plan_->modules()[m];
    const std::shared_ptr<Module> alive = planned.owner.lock();
    if (alive == nullptr && planned.module != &module_) continue;  // the body dropped it
    restore_registry(registry_of(planned, /*is_buffer=*/false), planned.parameter_names, todo[m].parameters);
    restore_registry(registry_of(planned, /*is_buffer=*/true), planned.buffer_names, todo[m].buffers);
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
    const Slot& slot = plan_->slots()[change.slot];
    if (slot.reach == Reach::kUnknown) pairs.emplace_back(change.value, *slot.entry);
  }
  return pairs;
}

TensorDict Installation::old_values() const {
  std::vector<at::Tensor> values;
  values.reserve(keys_->size());
  for (std::size_t i = 0; i < keys_->size(); ++i) values.push_back(first_change_of(i).value);
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
    const Slot& slot = plan_->slots()[changes_[i].slot];
    const PlannedModule& planned = plan_->modules()[slot.module];
    const at::Tensor* const value = registry_of(planned, slot.is_buffer).find(entry_name(planned, slot));
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
