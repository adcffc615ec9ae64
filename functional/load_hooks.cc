#include "functional/load_hooks.h"

#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"

namespace graft {
namespace {

using torch::nn::Module;

struct RegisteredHook {
  uint64_t id;
  std::weak_ptr<Module> module;
  LoadHook hook;
};

struct HookTable {
  std::mutex mutex;
  uint64_t last_id = 0;
  std::vector<RegisteredHook> hooks;
};

/// Never destroyed: a module in static storage may outlive what is destroyed at exit.
HookTable& table() {
  static auto* const instance = new HookTable;
  return *instance;
}

/// Returns copies, because a hook may register or remove others.
std::vector<LoadHook> hooks_of(const Module& module) {
  HookTable& hook_table = table();
  const std::lock_guard lock(hook_table.mutex);
  std::vector<LoadHook> found;
  for (const RegisteredHook& entry : hook_table.hooks) {
    if (entry.module.lock().get() == &module) found.push_back(entry.hook);
  }
  return found;
}

}  // namespace

LoadHookHandle register_load_hook(const std::shared_ptr<Module>& module, LoadHook hook) {
  TORCH_CHECK_VALUE(module != nullptr, "register_load_hook: expected a module, got a null pointer");
  HookTable& hook_table = table();
  const std::lock_guard lock(hook_table.mutex);
  std::erase_if(hook_table.hooks, [](const RegisteredHook& entry) { return entry.module.expired(); });
  hook_table.hooks.push_back({++hook_table.last_id, module, std::move(hook)});
  return LoadHookHandle(hook_table.last_id);
}

void LoadHookHandle::remove() const {
  HookTable& hook_table = table();
  const std::lock_guard lock(hook_table.mutex);
  std::erase_if(hook_table.hooks, [this](const RegisteredHook& entry) { return entry.id == id_; });
}

void internal::run_load_hooks(Module& root, TensorDict& state) {
  for (const LoadHook& hook : hooks_of(root)) hook(state, "");
  absl::flat_hash_set<const Module*> seen = {&root};
  for (const auto& item : root.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    if (!seen.insert(item.value().get()).second) continue;
    for (const LoadHook& hook : hooks_of(*item.value())) hook(state, item.key() + ".");
  }
}

}  // namespace graft
