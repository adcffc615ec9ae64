#include "functional/state_dict.h"

#include "functional/internal/saved_state.h"

namespace graft {

TensorDict state_dict(const torch::nn::Module& module) {
  return internal::saved_tensors(internal::saved_state(module));
}

}  // namespace graft
