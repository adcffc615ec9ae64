// vjp: the value of a function and its vector-Jacobian product, which is kept to be used again and again.
//
//   auto f = [](const TensorDict& p, const Tensor& x) { return x.matmul(p["w"]).tanh(); };
//   auto [y, pullback] = vjp<0>(f, params, x);      // y = f(params, x), [n, m]
//   TensorDict g = pullback(torch::ones_like(y));   // the gradient of sum(y), shaped like params
//   auto [h, auxiliary, norm] = ...                 // if f returns WithAux (functional/with_aux.h)
//
// f returns any tree of tensors (functional/tree.h); the cotangents that `pullback` takes are a tree of the same type.
// It runs f's backward alone, not f. It owns what f recorded, and lives as long as it is kept, in other transforms too.
// Python: torch.func.vjp, jax.vjp.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "functional/internal/argnums.h"
#include "functional/internal/grad_call.h"
#include "functional/internal/tangents.h"
#include "functional/tree.h"
#include "functional/with_aux.h"

namespace graft {
namespace internal {

/// What a call recorded, to be differentiated when its level has ended.
class Recording {
 public:
  /// Takes the tensors of `results` out of the level of `call`.
  Recording(const GradCall& call, const std::vector<TreePart>& results);

  /// Returns the gradients of the inputs of the call, of zeros where nothing depends on one.
  std::vector<Tensor> pull_back(const std::vector<Tensor>& cotangents) const;

 private:
  bool is_differentiated(const std::vector<Tensor>& cotangents) const;

  std::vector<Tensor> inputs_;   ///< values of the level
  std::vector<Tensor> results_;  ///< the same
};

}  // namespace internal

/// The vector-Jacobian product of a function at a point. Copies share what the function recorded.
/// Output: the type of the function's result; Gradients: that of the differentiated argument, or a std::tuple of
/// several.
template <class Output, class Gradients>
class Pullback {
 public:
  Pullback(internal::Recording recording, Output output, Gradients arguments)
      : recording_(std::move(recording)), output_(std::move(output)), arguments_(std::move(arguments)) {}

  /// Returns the sum over all results of cotangent * d result / d argument, for each differentiated argument. It can be
  /// differentiated further, by transforms and by ordinary autograd.
  /// \throws c10::ValueError listing each tensor whose shape or dtype is not that of its result.
  Gradients operator()(const Output& cotangents) const {
    Output given = cotangents, expected = output_;
    Gradients gradients = arguments_;
    internal::set_tensors(collect_parts(gradients),
                          recording_.pull_back(internal::tensors_like("vjp", "cotangents", "result",
                                                                      collect_parts(given), collect_parts(expected))));
    return gradients;
  }

 private:
  internal::Recording recording_;
  Output output_;
  Gradients arguments_;
};

namespace internal {

template <std::size_t... positions, class F, class... Args>
auto vjp_at(Positions<positions...>, const F& f, Args&&... args) {
  HeldArguments<Args...> arguments(std::forward<Args>(args)...);
  static_assert((Tree<std::remove_cvref_t<std::tuple_element_t<positions, HeldArguments<Args...>>>> && ...),
                "vjp: an argument to differentiate must consist of tensors alone; name the others by argnums");
  auto differentiated = one_or_all(std::make_tuple(std::get<positions>(arguments)...));

  const ArgumentParts parts = collect_each(arguments);
  check_differentiable("vjp", parts, {positions...});
  const GradCall call(parts, {positions...});
  auto result = call_with(f, arguments);
  auto& output = output_of(result);
  static_assert(Tree<std::remove_reference_t<decltype(output)>>,
                "vjp: the function must return tensors alone, see functional/tree.h; or WithAux{result, other things}");
  Recording recording(call, collect_parts(output));
  call.leave(aux_parts(result));
  Pullback pullback(std::move(recording), output, std::move(differentiated));
  return output_with(std::move(result), std::move(pullback));
}

}  // namespace internal

/// Returns the pair of f's result and a Pullback; with WithAux the tuple of both and the auxiliary value.
///
/// \tparam argnums Which arguments, each once; all if none is given; negative numbers count from the end.
/// \param f A function that can be called as const and returns a tree of tensors. Results that depend on no
///     differentiated argument, or are not of a floating type, add nothing. A no_grad in f is respected; one around the
///     call does not stop the derivative.
/// \throws c10::TypeError listing the tensors of differentiated arguments that are not of a floating type.
/// Python: torch.func.vjp.
template <int... argnums, class F, class... Args>
auto vjp(const F& f, Args&&... args) {
  return internal::vjp_at(internal::positions_or_all<sizeof...(Args), argnums...>(), f, std::forward<Args>(args)...);
}

}  // namespace graft
