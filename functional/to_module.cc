#include "functional/to_module.h"

#include <c10/util/Exception.h>

#include "functional/internal/installation.h"
#include "functional/internal/state_load.h"
#include "functional/internal/transform_level.h"

namespace graft {
namespace {

void check(const ToModuleOptions& options) {
  TORCH_CHECK_VALUE(!options.inplace || !options.use_state_dict,
                    "to_module: inplace cannot be combined with use_state_dict");
  TORCH_CHECK_VALUE(!options.inplace || options.check_shapes,
                    "to_module: inplace cannot be combined with check_shapes = false, because values are only copied "
                    "between tensors of one shape");
  TORCH_CHECK_VALUE(!options.non_blocking || options.inplace,
                    "to_module: non_blocking is for copies, so it needs inplace = true");
  TORCH_CHECK_VALUE(options.swap_dest == nullptr || options.return_swap,
                    "to_module: swap_dest gets the old values, so it cannot be combined with return_swap = false");
  TORCH_CHECK_VALUE(!options.inplace || internal::depth() == 0,
                    "to_module: inplace is not possible inside vmap, grad or another transform");
}

internal::InstallRules rules_of(const ToModuleOptions& options) {
  check(options);
  return {.call = "to_module",
          .preserve_flags = options.preserve_module_state && !options.inplace,
          .check_shapes = options.check_shapes,
          .strict = options.strict,
          .inplace = options.inplace,
          .non_blocking = options.non_blocking};
}

/// Writes all old values, or none.
void write_to(TensorDict& destination, const TensorDict& old) {
  TensorDict written = destination;
  for (const auto& [path, value] : old.leaves()) written.set(path, value);
  destination = std::move(written);
}

std::unique_ptr<internal::Installation> install(const TensorDict& tree, torch::nn::Module& module,
                                                const ToModuleOptions& options, const internal::InstallRules& rules) {
  TensorDict loaded;
  const TensorDict* trees[] = {&tree};
  if (options.use_state_dict) {
    loaded = internal::loaded_state(tree, module);
    trees[0] = &loaded;
  }
  auto installation = std::make_unique<internal::Installation>(module, trees, rules);
  if (options.swap_dest != nullptr) write_to(*options.swap_dest, installation->old_values());
  return installation;
}

}  // namespace

std::optional<TensorDict> to_module(const TensorDict& tree, torch::nn::Module& module, const ToModuleOptions& options) {
  internal::InstallRules rules = rules_of(options);
  rules.alias = true;
  const auto installation = install(tree, module, options, rules);
  std::optional<TensorDict> old;
  if (options.return_swap) old = installation->old_values();
  installation->keep();
  return old;
}

ToModuleGuard::ToModuleGuard(const TensorDict& tree, torch::nn::Module& module, const ToModuleOptions& options)
    : installation_(install(tree, module, options, rules_of(options))) {}

ToModuleGuard::~ToModuleGuard() = default;

TensorDict ToModuleGuard::swapped_out() const { return installation_->old_values(); }

TensorDict ToModuleGuard::current() const { return installation_->current_values(); }

}  // namespace graft
