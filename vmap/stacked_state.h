// stack_module_state and from_modules: the parameters and buffers of several like modules, stacked, for vmap.
//
//   std::vector<torch::nn::Linear> nets = ...;                         // m of them
//   auto [params, buffers] = stack_module_state(nets);                 // leaves [m, ...]
//   auto forward = [&](const TensorDict& p, const Tensor& x) { return functional_call(nets[0], p, x); };
//   Tensor y = vmap(forward, {.in_dims = {0, std::nullopt}})(params, x);   // [m, b, o]
//   TensorDict state = from_modules(nets);                             // params and buffers in one tree
//
// Modules are alike if their trees of sub-modules have the same names, classes and train or eval modes, and their
// leaves the same names, shapes, dtypes, devices, requires_grad and ties (names of one tensor). Modules that are not
// are refused, with every difference in one message.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "functional/module_ref.h"
#include "tensordict/tensordict.h"

namespace graft {

/// The state of m modules of one class.
struct StackedState {
  TensorDict params;   ///< leaves [m, ...], batch size [m]; fresh, each requires grad as in the modules
  TensorDict buffers;  ///< leaves [m, ...], batch size [m]
};

/// Modules by reference, made from a list of holders or pointers.
class ModuleRefs {
 public:
  /// \throws c10::ValueError for a null pointer. LibTorch refuses an empty holder.
  template <typename Modules>
  ModuleRefs(const Modules& modules) {  // NOLINT: any list of modules is a list of modules
    for (const auto& module : modules) modules_.push_back(&ModuleRef(module).get());
  }
  absl::Span<torch::nn::Module* const> modules() const { return modules_; }

 private:
  std::vector<torch::nn::Module*> modules_;
};

/// Stacks copies of the parameters and of the buffers of `modules` along a new first dim. The modules share nothing
/// with the result. Names of one tensor in the modules are names of one tensor in the result.
/// \throws c10::ValueError if the list is empty, and listing every difference between the first module and another.
/// Python: torch.func.stack_module_state. See also unstack_module_state, the inverse.
StackedState stack_module_state(const ModuleRefs& modules);

struct FromModulesOptions {
  /// true: a leaf that is the same tensor in all modules is expanded (stride 0), not copied. It shares that tensor's
  /// memory, and its gradients reach that tensor. Train mode cannot write to such a buffer.
  bool expand_identical = false;
};

/// Returns the parameters and buffers of m modules as one tree of fresh leaves [m, ...] with batch size [m], in the
/// order of from_module. Each requires grad as in the modules, which share nothing with the result unless
/// `options.expand_identical` says so. For gradients that reach every module's own parameters, `stack` the trees of
/// `from_module` instead.
/// \throws c10::ValueError as stack_module_state does.
/// Python: TensorDict.from_modules, which does not compare modes, classes, dtypes or requires_grad, and loses ties.
TensorDict from_modules(const ModuleRefs& modules, const FromModulesOptions& options = {});

/// Copies member i of `state` into the parameters and buffers of the ith module, in place.
/// \throws c10::ValueError if the list is empty or the number of modules is not that of the members, and listing every
///     leaf that does not fit; nothing is copied then.
void unstack_module_state(const StackedState& state, const ModuleRefs& modules);

/// The same for a tree that from_modules returned.
void unstack_module_state(const TensorDict& state, const ModuleRefs& modules);

}  // namespace graft
