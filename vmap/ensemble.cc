#include "vmap/ensemble.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include "tensordict/archive.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

void copy_into(const TensorDict& target, const TensorDict& source) {
  for (const auto& [path, value] : target.leaves()) Tensor(value).copy_(source[path]);
}

}  // namespace

void save_state(const StackedState& state, const std::string& file) {
  TensorDict whole(state.params.batch_size());
  if (!state.params.empty()) whole.set("params", state.params);
  if (!state.buffers.empty()) whole.set("buffers", state.buffers);
  save(whole, file);
}

StackedState load_state(const std::string& file) {
  const TensorDict whole = load(file);
  const auto part = [&](const char* name) {
    return whole.contains(name) ? whole.subtree(name) : TensorDict(whole.batch_size());
  };
  return {.params = part("params"), .buffers = part("buffers")};
}

void assign_state(const StackedState& target, const StackedState& source) {
  const std::string mismatch =
      describe_mismatch(source.params, target.params) + describe_mismatch(source.buffers, target.buffers);
  TORCH_CHECK_VALUE(mismatch.empty(), "Ensemble: the state does not fit:", mismatch);
  const at::NoGradGuard no_grad;
  copy_into(target.params, source.params);
  copy_into(target.buffers, source.buffers);
}

}  // namespace graft
