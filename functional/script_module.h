// TorchScript modules as functions of their parameters: a model that Python exported, loaded and used as any module.
//
//   torch::jit::Module net = torch::jit::load("net.pt");
//   TensorDict params = from_module(net, State::kParameters);
//   Tensor y = functional_call(net, params, x);
//   auto loss = [&](const TensorDict& p, const Tensor& x) { return functional_call(net, p, x).square().sum(); };
//   TensorDict per_sample = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, x);
//
// from_module, to_module and ToModuleGuard (included here) take TorchScript modules too, with the same contract, but
// for threads: nothing notices two that swap or call one TorchScript module at a time, and they must not. There is no
// `.concurrent` either; give each thread a module of its own (`net.deepcopy()`).
//
// NOTE: [TorchScript and derivatives]
// functional_call runs the code of `forward` as it is written. Module::forward soon runs what TorchScript's optimiser
// made of it, and a gradient of a gradient, or a forward-mode tangent, through that is silently wrong. So never call
// `net.forward(x)` inside a transform: where a guard has installed the leaves, call
// `functional_call(net, TensorDict(), x)`. (Why: functional/internal/script_forward.h.)
//
// What else is different from torch::nn modules:
// - Parameters and buffers are what the file says is registered. Other attributes that hold tensors, lists of tensors
//   too, are left alone, and torch.jit.freeze turns all of them into constants: from_module then returns an empty tree.
// - A name that held None when Python compiled the module (the bias of a Linear without bias) takes no leaf.
// - A sub-module under two names is saved as two that share their tensors. For to_module these are tied parameters,
//   each of which follows its own name.
// - A forward that calls a sub-module through a module interface is refused by functional_call.
// - Hooks of the module itself are not called, those of its sub-modules are.
// - Exceptions of operators arrive as std::runtime_error with TorchScript's traceback.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include <type_traits>
#include <utility>
#include <vector>

#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/to_module.h"

namespace graft {

namespace internal {

/// The untyped core of functional_call.
c10::IValue call_script_module(const torch::jit::Module& module, const StateTrees& state,
                               std::vector<c10::IValue> arguments);

/// \throws c10::TypeError if `result` is no tensor.
at::Tensor tensor_result(const torch::jit::Module& module, const c10::IValue& result);

}  // namespace internal

/// Returns what `module.forward(arguments...)` returns with the leaves of `state` in place of the module's own tensors.
/// Leaves, ties, and the module afterwards are as for torch::nn modules, see functional/functional_call.h.
///
/// \tparam Result what to return the result as: a Tensor, a std::tuple, a std::vector or whatever else c10::IValue::to
///     knows, or the c10::IValue itself, as in `functional_call<c10::IValue>(net, params, x)`.
/// \param arguments anything that a c10::IValue is made from. Those that have defaults may be left out at the end.
/// \throws c10::IndexError and c10::ValueError as for torch::nn modules.
/// \throws c10::TypeError if the result is not the Tensor that was asked for.
/// \throws c10::NotImplementedError if forward calls through a module interface.
/// Python: torch.func.functional_call with tie_weights=True.
template <typename Result = at::Tensor, typename... Arguments>
Result functional_call(torch::jit::Module module, const StateTrees& state, Arguments&&... arguments) {
  c10::IValue result =
      internal::call_script_module(module, state, {c10::IValue(std::forward<Arguments>(arguments))...});
  if constexpr (std::is_same_v<Result, c10::IValue>) {
    return result;
  } else if constexpr (std::is_same_v<Result, at::Tensor>) {
    return internal::tensor_result(module, result);
  } else {
    return result.to<Result>();
  }
}

}  // namespace graft
