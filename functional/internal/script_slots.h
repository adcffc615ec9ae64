// ScriptSlots: where the registered tensors of a TorchScript module tree are held.
//
// A TorchScript module is a c10::ivalue::Object, whose attributes lie in numbered slots; its class says of each slot
// whether it is a parameter or a buffer. `forward` reads the slots, so there is one handle for each tensor. What else
// holds tensors (attributes that are not registered, lists, constants of a frozen module) is none of these.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/class_type.h>
#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensordict/key_table.h"

namespace graft::internal {

using ScriptObject = c10::intrusive_ptr<c10::ivalue::Object>;

/// One parameter or buffer.
struct ScriptSlot {
  ScriptObject owner;
  std::size_t position;  ///< among the slots of its owner
  bool is_buffer;
  bool takes_tensors;  ///< false: the class has it as None, and `forward` was compiled for that

  std::string name() const { return owner->type()->getAttributeName(position); }
  const c10::IValue& value() const { return owner->getSlot(position); }
  /// The tensor that it holds; undefined for None.
  at::Tensor tensor() const { return value().isTensor() ? value().toTensor() : at::Tensor(); }
};

class ScriptSlots {
 public:
  /// Of each module first the parameters, then the buffers, then the sub-modules. A shared one is listed once.
  explicit ScriptSlots(const ScriptObject& root);

  std::size_t size() const { return slots_.size(); }
  const ScriptSlot& operator[](uint32_t index) const { return slots_[index]; }

  /// Every dotted name there is, a shared module under each of its names; None included.
  const KeyTable& names() const { return names_; }
  /// The slot behind each name.
  const std::vector<uint32_t>& slot_of_name() const { return slot_of_name_; }

  /// Returns the slots that the keys of a tree stand for.
  /// \throws c10::IndexError listing every key that stands for nothing.
  std::vector<uint32_t> slots_for(const KeyTable& keys, std::string_view call) const;

 private:
  void add_module(const ScriptObject& object, const std::string& path);
  void add_slots(const ScriptObject& object, bool buffers);
  std::string unknown_key_message(std::string_view key) const;

  struct Range {
    uint32_t begin, end;
  };

  std::vector<ScriptSlot> slots_;
  std::map<const c10::ivalue::Object*, Range> slots_of_module_;
  std::map<std::string, ScriptObject, std::less<>> module_of_path_;
  KeyTable names_;
  std::vector<uint32_t> slot_of_name_;
};

/// The name of a module's class, for messages.
std::string script_class_name(const ScriptObject& object);

}  // namespace graft::internal
