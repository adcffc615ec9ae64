// What a module makes of a state that it loads, without loading it.
#pragma once

#include "tensordict/tensordict.h"

namespace torch::nn {
class Module;
}

namespace graft::internal {

/// Runs the module's load hooks and its `load` on a scratch copy of its state, and returns the values that it then
/// held: those of the names in `tree`, and those that differ from what it holds now. What `tree` lacks is what the
/// module itself would save. The module is unchanged.
/// \throws c10::IndexError listing leaves that the module does not save, c10::ValueError listing leaves of a transform.
TensorDict loaded_state(const TensorDict& tree, torch::nn::Module& module);

}  // namespace graft::internal
