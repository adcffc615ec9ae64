#include "functional/internal/script_installation.h"

#include <c10/util/Exception.h>

#include <optional>
#include <sstream>

#include "functional/internal/grad_alias.h"

namespace graft::internal {
namespace {

/// A slot as the rules for leaves see it; `tensor` is what it holds.
Slot seen_by_rules(const ScriptSlot& slot, at::Tensor& tensor) {
  return {.entry = &tensor,
          .module = 0,
          .first_member = 0,
          .member_count = 0,
          .is_buffer = slot.is_buffer,
          .reach = Reach::kRegistry};
}

/// Where the slot is now; nothing if the attribute was removed.
std::optional<std::size_t> find_position(const ScriptSlot& slot, const std::string& name) {
  const auto type = slot.owner->type();
  if (slot.position < type->numAttributes() && type->getAttributeName(slot.position) == name) return slot.position;
  return type->findAttributeSlot(name);
}

}  // namespace

ScriptInstallation::ScriptInstallation(const ScriptObject& root, Trees trees, const InstallRules& rules)
    : root_(root), keys_(trees.front()->keys()) {
  const ScriptSlots slots(root);
  const LeafRequests requests = requests_of(slots, trees, rules);
  check_fit(slots, requests, rules);
  install(slots, requests, rules);
}

ScriptInstallation::~ScriptInstallation() {
  if (kept_) return;
  contents_.restore();
  for (Written& written : written_) {
    if (const auto position = find_position(written.slot, written.name)) {
      written.slot.owner->setSlot(*position, std::move(written.old_value));
    }
  }
}

LeafRequests ScriptInstallation::requests_of(const ScriptSlots& slots, Trees trees, const InstallRules& rules) const {
  LeafRequests requests;
  for (const TensorDict* tree : trees) {
    const std::vector<uint32_t> indices = slots.slots_for(*tree->keys(), rules.call);
    for (std::size_t i = 0; i < indices.size(); ++i) {
      requests.push_back({indices[i], &tree->values()[i], &tree->keys()->path(i)});
    }
  }
  check_one_leaf_each(slots, requests, rules);
  const auto held = [&](uint32_t slot) { return slots[slot].tensor(); };
  if (rules.strict) {
    check_strict(rules, script_class_name(root_), slots.names(), slots.slot_of_name(),
                 slots_with_leaf(requests, slots.size()), [&](uint32_t slot) { return held(slot).defined(); });
  }
  if (rules.tie) {
    const LeafRequests ties = tied_requests(requests, slots.size(), held);
    requests.insert(requests.end(), ties.begin(), ties.end());
  }
  return requests;
}

/// One slot may be named twice (a shared module, or two trees), and with ties one parameter, but only with one leaf.
void ScriptInstallation::check_one_leaf_each(const ScriptSlots& slots, const LeafRequests& requests,
                                             const InstallRules& rules) const {
  check_conflicts(rules.call, script_class_name(root_), requests, [&](uint32_t index) -> const void* {
    const ScriptSlot& slot = slots[index];
    const at::Tensor tensor = slot.tensor();
    const bool is_one_tensor = tensor.defined() && (rules.tie || rules.inplace);
    return is_one_tensor ? static_cast<const void*>(tensor.unsafeGetTensorImpl()) : &slot;
  });
}

void ScriptInstallation::check_fit(const ScriptSlots& slots, const LeafRequests& requests,
                                   const InstallRules& rules) const {
  std::ostringstream problems;
  std::size_t count = 0;
  for (const auto& [index, leaf, name] : requests) {
    at::Tensor tensor = slots[index].tensor();
    const Slot slot = seen_by_rules(slots[index], tensor);
    if (!slots[index].takes_tensors) {
      problems << "\n  \"" << *name << "\": shape " << leaf->sizes()
               << ", expected no leaf, because the module was compiled with None there";
    } else if (!fits(slot, *leaf, needs_alias(slot, *leaf, rules), rules)) {
      problems << "\n  \"" << *name << "\": ";
      describe_value_misfit(slot, *leaf, rules, problems);
    } else {
      continue;
    }
    ++count;
  }
  TORCH_CHECK_VALUE(count == 0, misfit_message(rules.call, count, script_class_name(root_), problems.str()));
}

void ScriptInstallation::install(const ScriptSlots& slots, const LeafRequests& requests, const InstallRules& rules) {
  AliasMap aliases;
  std::vector<c10::IValue> values;
  for (const LeafRequest& request : requests) {
    const ScriptSlot& slot = slots[request.slot];
    at::Tensor tensor = slot.tensor();
    at::Tensor value = rules.inplace ? tensor : *request.leaf;
    if (!rules.inplace && needs_alias(seen_by_rules(slot, tensor), value, rules)) {
      value = alias_with_grad(value, aliases);
    }
    written_.push_back({slot, slot.name(), slot.value()});
    values.emplace_back(std::move(value));
  }
  if (rules.inplace) copy_values(slots, requests, rules);
  // From here to its end this loop cannot fail.
  for (std::size_t i = 0; i < written_.size(); ++i) {
    written_[i].slot.owner->setSlot(written_[i].slot.position, std::move(values[i]));
  }
  if (rules.reset_members) remember_others(slots, requests);
}

/// Code assigns to attributes that have no leaf as well.
void ScriptInstallation::remember_others(const ScriptSlots& slots, const LeafRequests& requests) {
  const std::vector<bool> has_leaf = slots_with_leaf(requests, slots.size());
  for (uint32_t i = 0; i < slots.size(); ++i) {
    if (!has_leaf[i]) written_.push_back({slots[i], slots[i].name(), slots[i].value()});
  }
}

void ScriptInstallation::copy_values(const ScriptSlots& slots, const LeafRequests& requests,
                                     const InstallRules& rules) {
  ContentSwap::Changes changes;
  for (const LeafRequest& request : requests) changes.emplace_back(slots[request.slot].tensor(), *request.leaf);
  contents_.copy(changes, rules.non_blocking);
}

TensorDict ScriptInstallation::old_values() const {
  return values_by_name([this](const Written& written) -> c10::IValue {
    if (!written.old_value.isTensor()) return written.old_value;
    const at::Tensor* const content = contents_.old_content(written.old_value.toTensor());
    return content == nullptr ? written.old_value : *content;
  });
}

TensorDict ScriptInstallation::current_values() const {
  return values_by_name([](const Written& written) {
    const auto position = find_position(written.slot, written.name);
    return position ? written.slot.owner->getSlot(*position) : c10::IValue();
  });
}

TensorDict ScriptInstallation::values_by_name(absl::FunctionRef<c10::IValue(const Written&)> value_of) const {
  TensorDict tree;
  for (std::size_t i = 0; i < keys_->size(); ++i) {
    const c10::IValue value = value_of(written_[i]);
    if (value.isTensor() && value.toTensor().defined()) tree.set(keys_->path(i), value.toTensor());
  }
  return tree;
}

}  // namespace graft::internal
