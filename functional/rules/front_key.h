// Kernels on the front key that step aside: some operators need a rule only under forward-mode derivatives and keep
// LibTorch's fast kernel otherwise.
//
//   TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
//     library.impl("_softmax_backward_data", under_forward_mode<softmax_backward_rule>());
//   }
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <type_traits>

namespace graft::internal {

/// Does what LibTorch does with an operator that has no kernel on the front key.
void run_without_rule(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

/// Says whether a forward-mode derivative is being taken. It may be another thread's: LibTorch's level of them is the
/// process's.
bool forward_mode_is_on();

/// Says whether a backward operator will itself be differentiated.
bool backward_is_differentiated();

/// Runs `rule` where `applies()`, or `applies(stack)` if it looks at the arguments, else what LibTorch does.
template <auto* applies, auto* rule>
void run_where(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static const auto kernel = c10::KernelFunction::makeFromUnboxedRuntimeFunction(rule);
  const auto does_apply = [&] {
    if constexpr (std::is_invocable_v<decltype(applies)>) {
      return applies();
    } else {
      return applies(*stack);
    }
  };
  if (does_apply()) {
    kernel.callBoxed(op, keys, stack);
  } else {
    run_without_rule(op, keys, stack);
  }
}

/// Returns a kernel for the front key: `rule` while a forward-mode derivative is taken, else LibTorch's way.
template <auto* rule>
torch::CppFunction under_forward_mode() {
  return torch::CppFunction::makeFromBoxedFunction<run_where<forward_mode_is_on, rule>>();
}

/// Returns a kernel for a backward operator: `rule` while it will be differentiated, else LibTorch's way.
template <auto* rule>
torch::CppFunction where_differentiated() {
  return torch::CppFunction::makeFromBoxedFunction<run_where<backward_is_differentiated, rule>>();
}

}  // namespace graft::internal
