// Load hooks: what happens to a state before a module loads it.
//
//   register_load_hook(layer.ptr(), [](TensorDict& state, const std::string& prefix) {
//     state.set(prefix + "weight", state.at(prefix + "w"));   // the name in older files
//     state.erase(prefix + "w");
//   });
//   to_module(old_state, net, {.use_state_dict = true});
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "tensordict/tensordict.h"

namespace torch::nn {
class Module;
}

namespace graft {

/// Changes a state before a module loads it: adds, renames, drops or converts leaves. `state` is the whole tree; the
/// module's own names start with `prefix`, for instance "encoder.", which is empty for the module that is loaded.
using LoadHook = std::function<void(TensorDict& state, const std::string& prefix)>;

/// Names a registered hook.
class LoadHookHandle {
 public:
  explicit LoadHookHandle(uint64_t id) : id_(id) {}

  /// Unregisters the hook. Harmless when it is gone already.
  void remove() const;

 private:
  uint64_t id_;
};

/// Registers a hook that runs once for each to_module with use_state_dict on `module` or on a module that contains it,
/// parents first, in the order of registration. The hook goes with the module.
/// \throws c10::ValueError for a null pointer.
/// Python: Module.register_load_state_dict_pre_hook.
LoadHookHandle register_load_hook(const std::shared_ptr<torch::nn::Module>& module, LoadHook hook);

namespace internal {

/// Runs the hooks of `root` and of all below it. Those of a shared module run once, under its first name.
void run_load_hooks(torch::nn::Module& root, TensorDict& state);

}  // namespace internal
}  // namespace graft
