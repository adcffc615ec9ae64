#include "functional/internal/swap_plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "tensordict/nested_key.h"

namespace graft::internal {
namespace {

using torch::nn::Module;

constexpr std::size_t kRememberedMappings = 4;
constexpr std::size_t kRememberedPlans = 64;

std::vector<std::string> names_in(const TensorRegistry& registry) {
  std::vector<std::string> names;
  for (const auto& item : registry.items()) names.push_back(item.key());
  return names;
}

std::vector<Module*> children_in(const ChildRegistry& registry) {
  std::vector<Module*> children;
  for (const auto& item : registry.items()) children.push_back(item.value().get());
  return children;
}

template <typename Value, typename Name>
bool same_keys(const torch::OrderedDict<std::string, Value>& registry, const std::vector<Name>& names) {
  return std::equal(registry.items().begin(), registry.items().end(), names.begin(), names.end(),
                    [](const auto& item, const std::string& name) { return item.key() == name; });
}

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

PlannedModule describe(Module& module, const std::string& path) {
  const ChildRegistry& children = child_registry(module);
  return {.module = &module,
          .owner = module.weak_from_this(),
          .type = typeid(module),
          .slots = &slots_of(module),
          .path = path,
          .parameters = parameter_registry(module).items().data(),
          .buffers = buffer_registry(module).items().data(),
          .children = children.items().data(),
          .parameter_names = names_in(parameter_registry(module)),
          .buffer_names = names_in(buffer_registry(module)),
          .child_modules = children_in(children),
          .handles = handles_of(slots_of(module), module)};
}

bool has_same_handles(const PlannedModule& planned) {
  if (!planned.slots->movable()) return true;
  std::size_t ordinal = 0;
  bool same = true;
  planned.slots->visit(*planned.module, [&](std::string_view, at::Tensor& handle) {
    same = same && ordinal < planned.handles.size() && planned.handles[ordinal] == &handle;
    ++ordinal;
  });
  return same && ordinal == planned.handles.size();
}

bool is_unchanged(const PlannedModule& planned) {
  Module& module = *planned.module;
  if (planned.type != typeid(module)) return false;
  const TensorRegistry& parameters = parameter_registry(module);
  const TensorRegistry& buffers = buffer_registry(module);
  const ChildRegistry& children = child_registry(module);
  return parameters.items().data() == planned.parameters && buffers.items().data() == planned.buffers &&
         children.items().data() == planned.children && same_keys(parameters, planned.parameter_names) &&
         same_keys(buffers, planned.buffer_names) &&
         std::equal(children.items().begin(), children.items().end(), planned.child_modules.begin(),
                    planned.child_modules.end(),
                    [](const auto& item, const Module* child) { return item.value().get() == child; }) &&
         has_same_handles(planned);
}

}  // namespace

SwapPlan::SwapPlan(Module& root) {
  std::vector<const Module*> ancestors;
  add_module(root, "", ancestors);
  match_members();
}

void SwapPlan::add_module(Module& module, const std::string& path, std::vector<const Module*>& ancestors) {
  TORCH_CHECK_VALUE(std::find(ancestors.begin(), ancestors.end(), &module) == ancestors.end(),
                    "to_module: the module \"", path, "\" contains itself");
  const auto [known, is_new] = module_indices_.emplace(&module, static_cast<uint32_t>(modules_.size()));
  const uint32_t index = known->second;
  module_of_path_.emplace(path, index);
  if (is_new) {
    modules_.push_back(describe(module, path));
    first_slot_of_module_.push_back(static_cast<uint32_t>(slots_.size()));
    const auto add_slots = [&](TensorRegistry& registry, bool is_buffer) {
      for (uint32_t i = 0; i < registry.size(); ++i) {
        slots_.push_back({.module = index,
                          .position = i,
                          .is_buffer = is_buffer,
                          .reach = Reach::kUnknown,
                          .first_member = 0,
                          .member_count = 0,
                          .entry = &registry[i].value(),
                          .member_name = ""});
      }
    };
    add_slots(parameter_registry(module), /*is_buffer=*/false);
    add_slots(buffer_registry(module), /*is_buffer=*/true);
  }
  add_names(index, path);
  ancestors.push_back(&module);
  for (auto& item : child_registry(module)) {
    if (item.value() != nullptr) add_module(*item.value(), join_path(path, item.key()), ancestors);
  }
  ancestors.pop_back();
}

void SwapPlan::add_names(uint32_t module, const std::string& path) {
  uint32_t slot = first_slot_of_module_[module];
  for (const auto* names : {&modules_[module].parameter_names, &modules_[module].buffer_names}) {
    for (const std::string& name : *names) {
      names_.insert(join_path(path, name));
      slot_of_name_.push_back(slot++);
    }
  }
}

// The rules, for each member handle:
//   1. It holds a registered tensor: it belongs to the entry of its own module and name if that holds the same tensor,
//      else to the first entry that does (C++ tying: `decoder->weight = encoder->weight`).
//   2. It is empty: it belongs to the empty entry of its own module and name, if there is one.
//   3. Else it belongs to nothing.
// An entry that got a member is reached. One that got none is reached if its module is known to read the registry, or
// if its own member was tied to another entry by rule 1. If its own member holds a tensor that is registered nowhere
// the module contradicts itself; else no member is known.
void SwapPlan::match_members() {
  absl::flat_hash_map<const at::TensorImpl*, uint32_t> first_holder;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].entry->defined())
      has_ties_ |= !first_holder.emplace(slots_[i].entry->unsafeGetTensorImpl(), i).second;
  }

  std::vector<std::vector<MemberHandle>> members(slots_.size());
  for (uint32_t m = 0; m < modules_.size(); ++m) {
    const PlannedModule& planned = modules_[m];
    const uint32_t first = first_slot_of_module_[m];
    const std::size_t own_count = planned.parameter_names.size() + planned.buffer_names.size();
    const auto own_slot = [&](std::string_view member) -> Slot* {
      for (std::size_t i = 0; i < own_count; ++i) {
        const bool is_buffer = i >= planned.parameter_names.size();
        const std::string& name =
            is_buffer ? planned.buffer_names[i - planned.parameter_names.size()] : planned.parameter_names[i];
        if (is_name_of(member, name)) return &slots_[first + i];
      }
      return nullptr;
    };
    uint32_t ordinal = 0;
    planned.slots->visit(*planned.module, [&](std::string_view member, at::Tensor& handle) {
      const MemberHandle found{.module = m, .ordinal = ordinal++, .address = &handle};
      Slot* const own = own_slot(member);
      if (own != nullptr && own->entry->is_same(handle)) {
        members[own - slots_.data()].push_back(found);
        return;
      }
      if (!handle.defined()) return;
      const auto holder = first_holder.find(handle.unsafeGetTensorImpl());
      if (holder != first_holder.end()) members[holder->second].push_back(found);
      if (own == nullptr || own->reach == Reach::kRegistry) return;
      own->reach = holder != first_holder.end() ? Reach::kRegistry : Reach::kDetached;
      own->member_name = member;
    });
    if (planned.slots->registry_only()) {
      for (std::size_t i = 0; i < own_count; ++i) slots_[first + i].reach = Reach::kRegistry;
    }
  }

  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].first_member = static_cast<uint32_t>(members_.size());
    slots_[i].member_count = static_cast<uint32_t>(members[i].size());
    members_.insert(members_.end(), members[i].begin(), members[i].end());
    if (!members[i].empty()) slots_[i].reach = Reach::kMembers;
  }
}

bool SwapPlan::is_valid(Module& root) const {
  if (modules_.front().module != &root) return false;
  // Modules stand in walking order, so each child is compared after its parent has shown that it is still there.
  return std::all_of(modules_.begin(), modules_.end(), is_unchanged);
}

std::string SwapPlan::unknown_key_message(std::string_view key) const {
  std::ostringstream text;
  text << "\n  \"" << key << "\": the module has no parameter, buffer or sub-module of that name";
  if (module_of_path_.contains(key)) return text.str() + " to hold a tensor; it is a sub-module";
  std::string_view parent = key;
  do {
    const std::size_t dot = parent.rfind('.');
    parent = dot == std::string_view::npos ? std::string_view() : parent.substr(0, dot);
  } while (!module_of_path_.contains(parent));
  const PlannedModule& planned = modules_[module_of_path_.find(parent)->second];
  text << " (" << (parent.empty() ? "it" : "\"" + std::string(parent) + "\"") << " has:";
  const char* separator = " ";
  const auto list = [&](const std::string& name) {
    text << separator << name;
    separator = ", ";
  };
  for (const auto& name : planned.parameter_names) list(name);
  for (const auto& name : planned.buffer_names) list(name);
  for (const auto& item : child_registry(*planned.module)) list(item.key());
  text << (*separator == ' ' ? " nothing)" : ")");
  return text.str();
}

const std::vector<uint32_t>& SwapPlan::slots_for(const std::shared_ptr<const KeyTable>& keys, std::string_view call) {
  for (const Mapping& mapping : mappings_) {
    if (mapping.keys == keys) return mapping.slots;
  }
  Mapping mapping{.keys = keys, .slots = {}, .positions = {}};
  std::string problems;
  std::size_t count = 0;
  for (std::size_t i = 0; i < keys->size(); ++i) {
    if (const auto position = names_.find(keys->path(i))) {
      mapping.slots.push_back(slot_of_name_[*position]);
    } else {
      problems += unknown_key_message(keys->path(i));
      ++count;
    }
  }
  TORCH_CHECK_INDEX(count == 0, call, ": ", count, count == 1 ? " leaf does" : " leaves do", " not fit module ",
                    modules_.front().module->name(), ":", problems, "\nThe module is unchanged.");
  return remember(std::move(mapping)).slots;
}

std::shared_ptr<const KeyTable> SwapPlan::keys_for(const std::vector<uint32_t>& positions) {
  for (const Mapping& mapping : mappings_) {
    if (!positions.empty() && mapping.positions == positions) return mapping.keys;
  }
  auto keys = std::make_shared<KeyTable>();
  Mapping mapping{.keys = keys, .slots = {}, .positions = positions};
  for (const uint32_t position : positions) {
    keys->insert(names_.path(position));
    mapping.slots.push_back(slot_of_name_[position]);
  }
  return remember(std::move(mapping)).keys;
}

const SwapPlan::Mapping& SwapPlan::remember(Mapping mapping) {
  if (mappings_.size() == kRememberedMappings) mappings_.erase(mappings_.begin());
  return mappings_.emplace_back(std::move(mapping));
}

namespace {

/// The plans of one thread, oldest first.
std::vector<std::shared_ptr<SwapPlan>>& remembered_plans() {
  thread_local std::vector<std::shared_ptr<SwapPlan>> plans;
  return plans;
}

auto find_plan(const Module& root) {
  auto& plans = remembered_plans();
  return std::find_if(plans.rbegin(), plans.rend(),
                      [&](const auto& plan) { return plan->modules().front().module == &root; });
}

}  // namespace

std::shared_ptr<SwapPlan> plan_for(Module& root) {
  auto& plans = remembered_plans();
  const auto known = find_plan(root);
  if (known != plans.rend()) {
    if ((*known)->is_valid(root)) return *known;
    plans.erase(std::next(known).base());
  }
  auto plan = std::make_shared<SwapPlan>(root);
  if (plans.size() == kRememberedPlans) plans.erase(plans.begin());
  plans.push_back(plan);
  return plan;
}

void forget_plan(Module& root) {
  auto& plans = remembered_plans();
  const auto known = find_plan(root);
  if (known != plans.rend()) plans.erase(std::next(known).base());
}

}  // namespace graft::internal
