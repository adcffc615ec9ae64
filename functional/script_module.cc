#include "functional/script_module.h"

#include <c10/util/Exception.h>

#include "functional/internal/script_forward.h"
#include "functional/internal/script_installation.h"

namespace graft::internal {

c10::IValue call_script_module(const torch::jit::Module& module, const StateTrees& state,
                               std::vector<c10::IValue> arguments) {
  TORCH_CHECK_VALUE(!state.trees().empty(), "functional_call: expected one tree of parameters or several, got none");
  const ScriptInstallation leaves(
      module._ivalue(), state.trees(),
      {.call = "functional_call", .preserve_flags = false, .tie = true, .reset_members = true});
  return script_forward(module._ivalue(), std::move(arguments));
}

at::Tensor tensor_result(const torch::jit::Module& module, const c10::IValue& result) {
  TORCH_CHECK_TYPE(result.isTensor(), "functional_call: forward of ", script_class_name(module._ivalue()),
                   " returned a value of type ", result.type()->repr_str(),
                   ", expected a Tensor; name another type, as in functional_call<c10::IValue>(module, state, x)");
  return result.toTensor();
}

}  // namespace graft::internal
