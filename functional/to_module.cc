#include "functional/to_module.h"

#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>

#include "functional/internal/installation.h"
#include "functional/internal/script_installation.h"
#include "functional/internal/state_load.h"
#include "functional/internal/transform_level.h"

namespace graft {
namespace internal {

/// Leaves in a module of either kind.
class ModuleSwap {
 public:
  virtual ~ModuleSwap() = default;
  virtual TensorDict old_values() const = 0;
  virtual TensorDict current_values() const = 0;
  virtual void keep() = 0;
};

namespace {

template <typename AnyInstallation>
class SwapBy final : public ModuleSwap {
 public:
  template <typename Module>
  SwapBy(const TensorDict& tree, Module&& module, const InstallRules& rules) : installation_(module, {&tree}, rules) {}
  TensorDict old_values() const override { return installation_.old_values(); }
  TensorDict current_values() const override { return installation_.current_values(); }
  void keep() override { installation_.keep(); }

 private:
  AnyInstallation installation_;
};

}  // namespace
}  // namespace internal

namespace {

using internal::InstallRules;
using internal::ModuleSwap;

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

InstallRules rules_of(const ToModuleOptions& options, bool persistent) {
  check(options);
  return {.call = "to_module",
          .preserve_flags = options.preserve_module_state && !options.inplace,
          .check_shapes = options.check_shapes,
          .strict = options.strict,
          .inplace = options.inplace,
          .non_blocking = options.non_blocking,
          .alias = persistent};
}

std::unique_ptr<ModuleSwap> swap(const TensorDict& tree, torch::nn::Module& module, bool use_state_dict,
                                 const InstallRules& rules) {
  using Swap = internal::SwapBy<internal::Installation>;
  if (!use_state_dict) return std::make_unique<Swap>(tree, module, rules);
  const internal::ModuleClaim claim(module, internal::ClaimKind::kExclusive,
                                    rules.call);  // while hooks and save read it
  return std::make_unique<Swap>(internal::loaded_state(tree, module), module, rules);
}

std::unique_ptr<ModuleSwap> swap(const TensorDict& tree, const torch::jit::Module& module, bool use_state_dict,
                                 const InstallRules& rules) {
  TORCH_CHECK_VALUE(!use_state_dict,
                    "to_module: a TorchScript module has no load and no hooks, so there is no use_state_dict");
  return std::make_unique<internal::SwapBy<internal::ScriptInstallation>>(tree, module._ivalue(), rules);
}

/// Writes all old values, or none.
void write_to(TensorDict& destination, const TensorDict& old) {
  TensorDict written = destination;
  for (const auto& [path, value] : old.leaves()) written.set(path, value);
  destination = std::move(written);
}

template <typename Module>
std::unique_ptr<ModuleSwap> install(const TensorDict& tree, Module& module, const ToModuleOptions& options,
                                    bool persistent) {
  auto installed = swap(tree, module, options.use_state_dict, rules_of(options, persistent));
  if (options.swap_dest != nullptr) write_to(*options.swap_dest, installed->old_values());
  return installed;
}

template <typename Module>
std::optional<TensorDict> install_for_good(const TensorDict& tree, Module& module, const ToModuleOptions& options) {
  const auto installed = install(tree, module, options, /*persistent=*/true);
  std::optional<TensorDict> old;
  if (options.return_swap) old = installed->old_values();
  installed->keep();
  return old;
}

}  // namespace

std::optional<TensorDict> to_module(const TensorDict& tree, ModuleRef module, const ToModuleOptions& options) {
  return install_for_good(tree, module.get(), options);
}

std::optional<TensorDict> to_module(const TensorDict& tree, const torch::jit::Module& module,
                                    const ToModuleOptions& options) {
  return install_for_good(tree, module, options);
}

ToModuleGuard::ToModuleGuard(const TensorDict& tree, ModuleRef module, const ToModuleOptions& options)
    : swap_(install(tree, module.get(), options, /*persistent=*/false)) {}

ToModuleGuard::ToModuleGuard(const TensorDict& tree, const torch::jit::Module& module, const ToModuleOptions& options)
    : swap_(install(tree, module, options, /*persistent=*/false)) {}

ToModuleGuard::~ToModuleGuard() = default;

TensorDict ToModuleGuard::swapped_out() const { return swap_->old_values(); }

TensorDict ToModuleGuard::current() const { return swap_->current_values(); }

}  // namespace graft
