#include "functional/internal/module_slots.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <typeindex>
#include <unordered_map>

namespace graft::internal {
namespace {

struct SlotTable {
  std::mutex mutex;
  std::vector<ClassSlots> classes;
  std::unordered_map<std::type_index, std::unique_ptr<ModuleSlots>> by_type;
};

/// Never destroyed: modules in static storage may be swapped while the program ends.
SlotTable& table() {
  static auto* const instance = new SlotTable;
  return *instance;
}

}  // namespace

void register_class_slots(ClassSlots slots) {
  SlotTable& slot_table = table();
  const std::lock_guard lock(slot_table.mutex);
  slot_table.classes.push_back(slots);
}

ModuleSlots::ModuleSlots(std::vector<ClassSlots> classes)
    : classes_(std::move(classes)),
      movable_(std::any_of(classes_.begin(), classes_.end(), std::mem_fn(&ClassSlots::movable))),
      registry_only_(std::any_of(classes_.begin(), classes_.end(), std::mem_fn(&ClassSlots::registry_only))) {}

void ModuleSlots::visit(torch::nn::Module& module, HandleVisitor visitor) const {
  for (const ClassSlots& slots : classes_) slots.visit(slots.cast(module), visitor);
}

const ModuleSlots& slots_of(torch::nn::Module& module) {
  SlotTable& slot_table = table();
  const std::lock_guard lock(slot_table.mutex);
  std::unique_ptr<ModuleSlots>& entry = slot_table.by_type[typeid(module)];
  if (entry == nullptr) {
    std::vector<ClassSlots> matching;
    for (const ClassSlots& slots : slot_table.classes) {
      if (slots.cast(module) != nullptr) matching.push_back(slots);
    }
    entry = std::make_unique<ModuleSlots>(std::move(matching));
  }
  return *entry;
}

}  // namespace graft::internal
