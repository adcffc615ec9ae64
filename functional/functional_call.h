// functional_call: a module as a function of its parameters.
//
//   TensorDict params = from_module(*net);
//   torch::Tensor y = functional_call(net, params, x);              // net->forward(x) with these parameters
//   torch::Tensor z = functional_call(net, {params, buffers}, x);   // from two trees
//
// Leaves are installed as they are, for the time of one forward; inside it `parameters()` shows the leaves. It takes
// every module: parameters of a class that Graft does not know are exchanged operator by operator (see the note in
// functional/internal/leaf_redirect.h), at a small cost; GRAFT_SLOTS (functional/slots.h) saves that cost.
// For TorchScript modules see functional/script_module.h.
#pragma once

#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "functional/internal/call_scope.h"
#include "functional/tree.h"
#include "tensordict/tensordict.h"

namespace graft {

/// One tree of leaves, or several: `params` or `{params, buffers}`. Refers to the trees, for the time of a call.
class StateTrees {
 public:
  /// A tree by reference; takes temporaries too, which live as long as the call they are written in.
  struct Tree {
    Tree(const TensorDict& tree) : tree(&tree) {}  // NOLINT: stands for the tree
    const TensorDict* tree;
  };

  StateTrees(const TensorDict& tree) : trees_{&tree} {}  // NOLINT: a tree is a list of one
  StateTrees(std::initializer_list<Tree> trees) {        // NOLINT: as above
    for (const Tree& element : trees) trees_.push_back(element.tree);
  }

  const std::vector<const TensorDict*>& trees() const { return trees_; }

 private:
  std::vector<const TensorDict*> trees_;
};

namespace internal {

/// The module behind a reference, a module holder such as torch::nn::Linear, or a shared_ptr. A const holder holds a
/// module that is not const, as a const pointer does.
template <typename Handle>
decltype(auto) module_behind(Handle& handle) {
  if constexpr (std::is_base_of_v<torch::nn::Module, std::remove_const_t<Handle>>) {
    return (handle);
  } else if constexpr (requires { handle.ptr(); }) {
    return (*handle.ptr());
  } else {
    return (*handle);
  }
}

}  // namespace internal

/// Returns what `module.forward(arguments...)` returns with the leaves of `state` in place of the module's own tensors.
///
/// Names that `state` lacks keep the module's own tensors, except that names of one tied parameter follow the name that
/// got a leaf. The module is back to what it was when the call returns or throws. One thread at a time may call with
/// one module.
///
/// \param module a module, a holder such as torch::nn::Linear, or a shared_ptr to a module; its static type has
///     `forward`.
/// \throws c10::IndexError listing every name that the module does not have.
/// \throws c10::ValueError listing every leaf with another shape than what it stands for, and names of one parameter
///     that are given different leaves. Exceptions of `forward` pass through.
/// Python: torch.func.functional_call with tie_weights=True.
template <typename Handle, typename... Arguments>
auto functional_call(Handle&& module, const StateTrees& state, Arguments&&... arguments) {
  auto& target = internal::module_behind(module);
  internal::CallScope scope(const_cast<torch::nn::Module&>(static_cast<const torch::nn::Module&>(target)),
                            state.trees());
  auto result = target.forward(std::forward<Arguments>(arguments)...);
  // A parameter that forward returns untouched went through no operator that could exchange it.
  for (const TreePart& part : collect_parts(result)) {
    replace_tensors(part, [&](const Tensor& tensor) { return scope.leaf_for(tensor); });
  }
  return result;
}

}  // namespace graft
