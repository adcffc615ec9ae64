#include "functional/to_module.h"

#include "functional/internal/installation.h"

namespace graft {
namespace {

internal::InstallRules rules_of(const ToModuleOptions& options) {
  return {.call = "to_module", .preserve_flags = options.preserve_module_state, .check_shapes = options.check_shapes};
}

}  // namespace

std::optional<TensorDict> to_module(const TensorDict& tree, torch::nn::Module& module, const ToModuleOptions& options) {
  const TensorDict* const trees[] = {&tree};
  internal::Installation installation(module, trees, rules_of(options));
  std::optional<TensorDict> old;
  if (options.return_swap) old = installation.old_values();
  installation.keep();
  return old;
}

ToModuleGuard::ToModuleGuard(const TensorDict& tree, torch::nn::Module& module, const ToModuleOptions& options) {
  const TensorDict* const trees[] = {&tree};
  installation_ = std::make_unique<internal::Installation>(module, trees, rules_of(options));
}

ToModuleGuard::~ToModuleGuard() = default;

TensorDict ToModuleGuard::swapped_out() const { return installation_->old_values(); }

TensorDict ToModuleGuard::current() const { return installation_->current_values(); }

}  // namespace graft
