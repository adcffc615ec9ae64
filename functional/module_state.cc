#include "functional/module_state.h"

#include <torch/csrc/jit/api/module.h>

#include "functional/internal/script_slots.h"
#include "functional/internal/swap_plan.h"

namespace graft {
namespace {

bool is_asked_for(bool is_buffer, State state) {
  return state == State::kAll || is_buffer == (state == State::kBuffers);
}

}  // namespace

TensorDict from_module(ModuleRef module, State state) {
  const auto plan = internal::plan_for(module.get());
  std::vector<uint32_t> positions;
  std::vector<at::Tensor> values;
  for (uint32_t i = 0; i < plan->slot_of_name().size(); ++i) {
    const internal::Slot& slot = plan->slots()[plan->slot_of_name()[i]];
    if (!is_asked_for(slot.is_buffer, state) || !slot.entry->defined()) continue;
    positions.push_back(i);
    values.push_back(*slot.entry);
  }
  return TensorDict(plan->keys_for(positions), std::move(values));
}

TensorDict from_module(const torch::jit::Module& module, State state) {
  const internal::ScriptSlots slots(module._ivalue());
  TensorDict tree;
  for (std::size_t i = 0; i < slots.names().size(); ++i) {
    const internal::ScriptSlot& slot = slots[slots.slot_of_name()[i]];
    const at::Tensor value = slot.tensor();
    if (is_asked_for(slot.is_buffer, state) && value.defined()) tree.set(slots.names().path(i), value);
  }
  return tree;
}

}  // namespace graft
