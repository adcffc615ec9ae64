// state_dict: the tensors that a module saves, which may differ from those it holds.
//
// A class that overrides `save` and `load` may write other names and other values than it registers. from_module and
// to_module go by what is registered; state_dict, and to_module with use_state_dict, go through what the module does.
#pragma once

#include "functional/module_ref.h"
#include "tensordict/tensordict.h"

namespace graft {

/// Returns copies of the tensors that `module.save` writes, under dotted names. They require no grad. Values that are
/// no tensors and names that hold nothing are left out.
/// Python: TensorDict.from_module(module, use_state_dict=True).
TensorDict state_dict(ModuleRef module);

}  // namespace graft
