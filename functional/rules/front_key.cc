#include "functional/rules/front_key.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/forward_grad.h>

namespace graft::internal {

void run_without_rule(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  // The key's fallback, read from an operator that has no rule.
  static const auto fallback = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("aten::relu", "")
                                   .getComputedKernelForDispatchKey(c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  fallback.callBoxed(op, keys, stack);
}

bool forward_mode_is_on() { return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr; }

bool backward_is_differentiated() { return forward_mode_is_on() || c10::GradMode::is_enabled(); }

}  // namespace graft::internal
