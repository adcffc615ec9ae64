#include "functional/internal/script_slots.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "functional/internal/leaf_requests.h"
#include "tensordict/nested_key.h"

namespace graft::internal {
namespace {

bool is_registered(const c10::ClassType& type, std::size_t position) {
  return type.is_parameter(position) || type.is_buffer(position);
}

/// An object may be older than an attribute of its class, and then lacks it.
std::size_t slot_count(const c10::ivalue::Object& object) {
  return std::min(object.slots().size(), object.type()->numAttributes());
}

}  // namespace

std::string script_class_name(const ScriptObject& object) { return object->type()->name()->name(); }

ScriptSlots::ScriptSlots(const ScriptObject& root) { add_module(root, ""); }

void ScriptSlots::add_module(const ScriptObject& object, const std::string& path) {
  module_of_path_.emplace(path, object);
  const auto [known, is_new] = slots_of_module_.emplace(object.get(), Range{});
  if (is_new) {
    known->second.begin = static_cast<uint32_t>(slots_.size());
    add_slots(object, /*buffers=*/false);
    add_slots(object, /*buffers=*/true);
    known->second.end = static_cast<uint32_t>(slots_.size());
  }
  for (uint32_t slot = known->second.begin; slot < known->second.end; ++slot) {
    names_.insert(join_path(path, slots_[slot].name()));
    slot_of_name_.push_back(slot);
  }
  const auto type = object->type();
  for (std::size_t i = 0; i < slot_count(*object); ++i) {
    const c10::IValue& value = object->getSlot(i);
    if (value.isModule()) add_module(value.toObject(), join_path(path, type->getAttributeName(i)));
  }
}

void ScriptSlots::add_slots(const ScriptObject& object, bool buffers) {
  const auto type = object->type();
  for (std::size_t i = 0; i < slot_count(*object); ++i) {
    const c10::IValue& value = object->getSlot(i);
    if (!is_registered(*type, i) || type->is_buffer(i) != buffers || !(value.isTensor() || value.isNone())) continue;
    slots_.push_back({.owner = object,
                      .position = i,
                      .is_buffer = buffers,
                      .takes_tensors = c10::TensorType::get()->isSubtypeOf(*type->getAttribute(i))});
  }
}

std::vector<uint32_t> ScriptSlots::slots_for(const KeyTable& keys, std::string_view call) const {
  std::vector<uint32_t> indices;
  std::string problems;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (const auto position = names_.find(keys.path(i))) {
      indices.push_back(slot_of_name_[*position]);
    } else {
      problems += unknown_key_message(keys.path(i));
    }
  }
  const std::size_t count = keys.size() - indices.size();
  TORCH_CHECK_INDEX(count == 0, misfit_message(call, count, script_class_name(module_of_path_.at("")), problems));
  return indices;
}

std::string ScriptSlots::unknown_key_message(std::string_view key) const {
  std::string text = "\n  \"" + std::string(key) + "\": the module has no parameter or buffer of that name";
  if (slots_.empty()) return text + "; it has none at all, as after torch.jit.freeze, which makes them constants";
  if (module_of_path_.contains(key)) return text + "; it is a sub-module";
  std::string_view parent = parent_path(key);
  while (!module_of_path_.contains(parent)) parent = parent_path(parent);
  const auto type = module_of_path_.find(parent)->second->type();
  const std::string name(parent.empty() ? key : key.substr(parent.size() + 1));
  if (type->hasAttribute(name)) return text + "; it is an attribute that is not registered as one";
  text += parent.empty() ? " (it has:" : " (\"" + std::string(parent) + "\" has:";
  const char* separator = " ";
  for (std::size_t i = 0; i < type->numAttributes(); ++i) {
    if (!is_registered(*type, i) && !type->getAttribute(i)->is_module()) continue;
    text += separator + type->getAttributeName(i);
    separator = ", ";
  }
  return text + (*separator == ' ' ? " nothing)" : ")");
}

}  // namespace graft::internal
