#include "functional/state_dict.h"

#include "functional/internal/saved_state.h"

namespace graft {

TensorDict state_dict(ModuleRef module) { return internal::saved_tensors(internal::saved_state(module.get())); }

}  // namespace graft
