// functional_call: a module as a function of its parameters.
//
//   TensorDict params = from_module(net);
//   torch::Tensor y = functional_call(net, params, x);              // net->forward(x) with these parameters
//   torch::Tensor z = functional_call(net, {params, buffers}, x);   // from two trees
//
// Leaves are installed as they are, for the time of one forward; inside it `parameters()` shows the leaves. It takes
// every module: parameters of a class that Graft does not know are exchanged operator by operator (see the note in
// functional/internal/leaf_redirect.h), at a small cost; GRAFT_SLOTS (functional/slots.h) saves that cost.
// For TorchScript modules see functional/script_module.h.
//
// NOTE: [Concurrent calls]
// `functional_call(net, params, {.concurrent = true}, x)` exchanges every leaf operator by operator, and on this thread
// alone, so any number of threads may call one module at once, each with its own leaves, and none waits for another.
//   - Each leaf has the shape, dtype and device of what it stands for, and none can stand for nothing (the bias of a
//     Linear without bias). Names of one tied parameter all mean that parameter.
//   - A buffer that `forward` changes in place (`num_batches_tracked += 1`) is exchanged as well: what is written lands
//     in the leaf. A buffer that has no leaf would be written by every thread: give all buffers that change, or put the
//     module in evaluation mode.
//   - `forward` itself must do for many threads: one that assigns to a data member of the module does not.
//   - Inside `forward`, `parameters()` shows the module's own tensors, which operators exchange like any other handle.
//   - What `forward` runs on further threads computes with the module's own tensors.
#pragma once

#include <concepts>
#include <initializer_list>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "functional/internal/call_advice.h"
#include "functional/internal/call_scope.h"
#include "functional/module_ref.h"
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

/// An argument of `forward` as it is.
template <typename Argument>
class CallArgument {
 public:
  CallArgument(CallScope&, Argument&& given) : given_(std::forward<Argument>(given)) {}
  Argument&& get() { return std::forward<Argument>(given_); }

 private:
  Argument&& given_;
};

/// One that may hold tensors. If some are parameters of the module that operators are given leaves for, `forward` gets
/// a copy with aliases in their place, so that what the caller passes is not exchanged.
template <typename Argument>
requires(HasTreeParts<std::remove_cvref_t<Argument>>&&
             std::copyable<std::remove_cvref_t<Argument>>) class CallArgument<Argument> {
 public:
  CallArgument(CallScope& scope, Argument&& given) : given_(std::forward<Argument>(given)) {
    if (scope.is_redirecting()) keep_apart(scope);
  }
  Argument&& get() { return static_cast<Argument&&>(copy_ ? *copy_ : given_); }

 private:
  void keep_apart(CallScope& scope) {
    copy_ = given_;
    bool has_changed = false;
    for (const TreePart& part : collect_parts(*copy_)) {
      replace_tensors(part, [&](const Tensor& tensor) {
        const Tensor kept = scope.argument(tensor);
        has_changed = has_changed || !kept.is_same(tensor);
        return kept;
      });
    }
    if (!has_changed) copy_.reset();
  }

  Argument&& given_;
  std::optional<std::remove_cvref_t<Argument>> copy_;
};

}  // namespace internal

struct CallOptions {
  /// true: many threads may call one module at once, each with leaves of its own, and functional_call does not write to
  /// the module. See the note at the head.
  bool concurrent = false;

  /// true: throw where gradients of the result would silently miss a leaf, see functional_call. Walks the graph that
  /// autograd recorded, so it is for tests and for looking into a doubt.
  bool checked = false;
};

namespace internal {

template <typename First = void, typename...>
inline constexpr bool kStartWithOptions = std::is_same_v<std::remove_cvref_t<First>, CallOptions>;

}  // namespace internal

/// Returns what `module.forward(arguments...)` returns with the leaves of `state` in place of the module's own tensors.
///
/// Names that `state` lacks keep the module's own tensors, except that names of one tied parameter follow the name that
/// got a leaf. When the call returns or throws, every handle that Graft knows holds what it held, members that
/// `forward` assigned to as well; what `forward` writes in place to a tensor without a leaf stays. One thread at a time
/// may call with one module, unless all calls are concurrent. Leaves and arguments mean themselves, even if one is a
/// parameter of the module that has another leaf.
///
/// A parameter may have a handle that Graft does not know, in a class without GRAFT_SLOTS, while others are known
/// (`out_ = embedding->weight`). The first call with a module finds such handles, by looking at what operators are
/// given, and reaches them from then on; later calls do not look again.
///
/// A torch::autograd::Function that `forward` applies to a parameter of a class that Graft does not know, or to any
/// parameter in a concurrent call, computes with the leaf, but its gradient goes to the module's own tensor.
/// `{.checked = true}` finds that:
///
///   Tensor y = functional_call(net, params, {.checked = true}, x);
///
/// \param module a module, a holder such as torch::nn::Linear, or a pointer to a module; its static type has
///     `forward`.
/// \throws c10::IndexError listing every name that the module does not have.
/// \throws c10::ValueError listing every leaf with another shape than what it stands for, in a concurrent call and for
///     a parameter with an unknown handle with another dtype or device too, or names of one parameter that are given
///     different leaves. Exceptions of `forward` pass through.
/// \throws c10::Error if `options.checked`, listing leaves whose gradient goes to the module's own tensor, and those of
///     which it cannot be told, because they require grad and the module's own tensors do not.
/// \throws c10::Error if another thread has swapped the module or one above or below it, or is calling it, unless both
///     calls are concurrent. A plain `forward` by another thread is not noticed.
/// Python: torch.func.functional_call with tie_weights=True.
template <typename Handle, typename... Arguments>
auto functional_call(Handle&& module, const StateTrees& state, const CallOptions& options, Arguments&&... arguments) {
  auto& target = internal::module_behind(module);
  auto& base = const_cast<torch::nn::Module&>(static_cast<const torch::nn::Module&>(target));
  internal::CallScope scope(base, state.trees(), options.concurrent);
  auto result = internal::with_advice(base, [&] {
    return target.forward(internal::CallArgument<Arguments>(scope, std::forward<Arguments>(arguments)).get()...);
  });
  const std::vector<TreePart> parts = collect_parts(result);
  // A parameter that forward returns untouched went through no operator that could exchange it.
  for (const TreePart& part : parts) {
    replace_tensors(part, [&](const Tensor& tensor) { return scope.leaf_for(tensor); });
  }
  scope.note_met();
  if (options.checked) scope.check_gradients(parts);
  return result;
}

/// The same with no options.
template <typename Handle, typename... Arguments>
requires(!internal::kStartWithOptions<Arguments...>) auto functional_call(Handle&& module, const StateTrees& state,
                                                                          Arguments&&... arguments) {
  return functional_call(module, state, CallOptions(), std::forward<Arguments>(arguments)...);
}

}  // namespace graft
