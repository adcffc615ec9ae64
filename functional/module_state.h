// from_module: the registered tensors of a module as a TensorDict.
#pragma once

#include "functional/module_ref.h"
#include "tensordict/tensordict.h"

namespace torch::jit {
struct Module;
}

namespace graft {

/// Which of a module's registered tensors to read.
enum class State { kAll, kParameters, kBuffers };

/// Returns the module's own tensors, nothing is copied, under dotted names: for each module its parameters, then its
/// buffers, then its sub-modules, as they were registered. A shared module appears under each of its names. Names that
/// hold nothing (the bias of a Linear without bias) and sub-modules without state are left out.
///
/// Reading twice gives trees that share one table of keys, which makes later calls with them cheaper.
/// Take State::kParameters for a tree to differentiate: integer buffers have no gradient.
/// Python: TensorDict.from_module. See also to_module, the inverse.
TensorDict from_module(ModuleRef module, State state = State::kAll);

/// The same for a TorchScript module; functional/script_module.h says what is different. Trees of two readings have
/// tables of their own.
TensorDict from_module(const torch::jit::Module& module, State state = State::kAll);

}  // namespace graft
