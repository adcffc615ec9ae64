// script_forward: runs a TorchScript module as it is written, without TorchScript's optimiser.
//
// NOTE: [Why not Module::forward]
// After its first calls TorchScript runs code that it has specialised for what it saw. That code differentiates some
// parts by itself, as one autograd node whose inputs are detached. Under transforms, or with forward-mode tangents,
// this is silently wrong: a gradient of a gradient lacks terms, a tangent is zero. (A single gradient is right.) The
// specialised code is kept with the method, so that earlier calls without any transform are enough, and no switch turns
// it off. Besides, kernels that it fuses read data pointers, which transformed tensors do not have.
//
// Here an executor of our own runs the method's graph as it is written, calls inlined. Every operator passes the
// dispatcher, and the module's specialised code is neither used nor made.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "functional/internal/script_slots.h"

namespace graft::internal {

/// Returns what `forward` returns, as Module::forward does (hooks of the module itself are not called).
/// \throws c10::NotImplementedError listing every call that cannot be inlined, as those through a module interface.
/// \throws c10::Error for arguments that do not fit. Other exceptions are those of Module::forward: TorchScript makes a
///     std::runtime_error with a traceback from an error of an operator.
c10::IValue script_forward(const ScriptObject& module, std::vector<c10::IValue> arguments);

}  // namespace graft::internal
