// to_module: installs the leaves of a TensorDict in a module, for good or for a scope.
//
//   torch::nn::Linear module(3, 4);
//   TensorDict params = from_module(module);
//   TensorDict zeros = zeros_like(params);
//   {
//     ToModuleGuard guard(zeros, module);         // until the end of the block, whatever happens in it
//     torch::Tensor y = module->forward(x);       // zeros
//   }
//   std::optional<TensorDict> old = to_module(zeros, module);   // until someone writes again
//   to_module(*old, module);
//
// NOTE: [Two handles]
// A LibTorch module holds each parameter twice: in its registry, and in a data member that `forward` reads. Both are
// set. Graft knows the members of every torch::nn module; a class of yours needs one line, see functional/slots.h.
//
// All leaves are installed or none: after an exception the module is as it was. Leaves are shared, never copied. Not
// for one call with other parameters: functional_call does that, for any module.
// A module is swapped by one thread at a time: another one that tries, or calls functional_call, gets an error. What
// another thread only reads (a plain `forward`, from_module, `parameters()`) is not noticed, and must not be meanwhile.
#pragma once

#include <memory>
#include <optional>

#include "functional/module_ref.h"
#include "tensordict/tensordict.h"

namespace torch::jit {
struct Module;
}

namespace graft {

namespace internal {
class ModuleSwap;
}

struct ToModuleOptions {
  /// true: the values of the leaves are copied into the tensors that the module holds, so that whoever else holds these
  /// (an optimiser, a tied module) sees them too. It reaches every module, GRAFT_SLOTS or not. Shape, dtype and device
  /// must agree, no gradient reaches the leaves, and autograd refuses a backward through an earlier forward.
  bool inplace = false;

  /// With inplace: copies from or to another device's pinned memory do not wait for their end.
  bool non_blocking = false;

  /// true: every parameter and buffer of the module must get a leaf, and a name that holds nothing must not.
  bool strict = false;

  /// true: the leaves pass through what the module does to a state that it loads, on the way in alone: load
  /// hooks (functional/load_hooks.h), then its virtual `load`. Values alone, converted to the dtype of what the module
  /// saves under their names: no gradient reaches the leaves.
  bool use_state_dict = false;

  /// true: what is installed has the `requires_grad` flag of what it replaces. A plain leaf enters as an alias that
  /// shares its storage and its version counter; a leaf that requires grad, is batched by vmap, is wrapped by grad or
  /// carries a forward-mode tangent enters as it is, so that derivatives reach it. Buffers enter as they are.
  /// false: every leaf enters as it is.
  bool preserve_module_state = true;

  /// false: leaves may have other shapes than what they replace.
  bool check_shapes = true;

  /// false: to_module returns nothing, and saves the time to build the tree of old values.
  bool return_swap = true;

  /// A tree that gets the old values as well, under the names in `tree`; its other leaves stay.
  TensorDict* swap_dest = nullptr;
};

/// Installs every leaf of `tree` under its dotted name in `module`. Parameters and buffers that `tree` does not name
/// stay. Forgets the old values, except that it returns them; for a scope use ToModuleGuard.
///
/// A parameter that no member is known to hold (see functional/slots.h) keeps its handles and shares the data of the
/// leaf from now on, if the leaf is plain; else it is refused.
///
/// \returns the old values under the names in `tree`, or nothing if `options.return_swap` is false: the tensors
///     themselves; with `options.inplace` copies of their values; where a parameter shares the data of a leaf from now
///     on, tensors over its old data that require no grad. Names that held nothing (the bias of a Linear without bias)
///     are left out.
/// \throws c10::IndexError listing every name that `module` does not have.
/// \throws c10::ValueError listing every leaf that does not fit: another shape than what it would replace (in place
///     also dtype or device), an integer leaf where the parameter requires grad, a parameter in a class that needs
///     GRAFT_SLOTS, names of one shared module (in place also of one tensor) that are given different leaves. Also for
///     options that contradict each other, and for old values that do not fit the batch size of `options.swap_dest`.
/// \throws c10::Error if another thread has swapped or is calling `module`, or a module above or below it.
/// Python: TensorDict.to_module.
std::optional<TensorDict> to_module(const TensorDict& tree, ModuleRef module, const ToModuleOptions& options = {});

/// The same for a TorchScript module; functional/script_module.h says what is different.
std::optional<TensorDict> to_module(const TensorDict& tree, const torch::jit::Module& module,
                                    const ToModuleOptions& options = {});

/// Installs the leaves as to_module does, until the guard is destroyed. Then every handle of a name in `tree` holds the
/// very tensor that it held before, under the same name, in the same order, whatever happened to the module in between:
/// values reassigned, entries unregistered, the module moved or cast. Names that `tree` lacks are as the block left
/// them, and names registered in between stay. Guards on one module unwind in reverse order, as blocks do. Python:
/// `with tree.to_module(module):`.
class [[nodiscard]] ToModuleGuard {
 public:
  /// \throws as to_module does; the module is then as it was.
  ToModuleGuard(const TensorDict& tree, ModuleRef module, const ToModuleOptions& options = {});
  /// The same for a TorchScript module. An attribute that is removed in between stays removed.
  ToModuleGuard(const TensorDict& tree, const torch::jit::Module& module, const ToModuleOptions& options = {});
  ~ToModuleGuard();
  ToModuleGuard(const ToModuleGuard&) = delete;
  ToModuleGuard& operator=(const ToModuleGuard&) = delete;

  /// Returns the values that the guard will put back; names that held nothing are left out.
  TensorDict swapped_out() const;

  /// Returns what the module holds now under the guard's names, for instance a buffer that `forward` reassigned.
  TensorDict current() const;

 private:
  std::unique_ptr<internal::ModuleSwap> swap_;
};

}  // namespace graft
