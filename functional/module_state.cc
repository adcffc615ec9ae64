#include "functional/module_state.h"

#include "functional/internal/swap_plan.h"

namespace graft {
namespace {

bool is_asked_for(const internal::Slot& slot, State state) {
  return state == State::kAll || slot.is_buffer == (state == State::kBuffers);
}

}  // namespace

TensorDict from_module(torch::nn::Module& module, State state) {
  const auto plan = internal::plan_for(module);
  std::vector<uint32_t> positions;
  std::vector<at::Tensor> values;
  for (uint32_t i = 0; i < plan->slot_of_name().size(); ++i) {
    const internal::Slot& slot = plan->slots()[plan->slot_of_name()[i]];
    if (!is_asked_for(slot, state) || !slot.entry->defined()) continue;
    positions.push_back(i);
    values.push_back(*slot.entry);
  }
  return TensorDict(plan->keys_for(positions), std::move(values));
}

}  // namespace graft
