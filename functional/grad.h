// grad and value_and_grad: the derivative of a function as a function.
//
//   auto f = [](const Tensor& w, const Tensor& x) { return (w * x).sum().square(); };
//   Tensor g = grad(f)(w, x);                  // df/dw, shaped like w
//   auto [gw, gx] = grad<0, 1>(f)(w, x);       // both
//   auto [value, gradient] = value_and_grad<-1>(f)(w, x);
//
// f takes any arguments (functional/tree.h says in which of them tensors are found) and returns a Tensor of shape [] or
// a std::pair of one and an auxiliary result, which is handed out and not differentiated. The gradient has the type of
// the argument. Transforms nest in any order, and ordinary autograd goes through the result.
//
// The returned callable owns f, is called as const and keeps nothing between calls. It is not for functions whose
// result has more than one element: their derivative is a Jacobian. Python: torch.func.grad, torch.func.grad_and_value
// (which returns the gradient first).
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "functional/internal/argnums.h"
#include "functional/internal/grad_call.h"
#include "functional/tree.h"

namespace graft {
namespace internal {

/// Replaces the tensors of `gradients`, which are the differentiated arguments in order, by the gradients of `loss`.
void differentiate(const GradCall& call, const Tensor& loss, const ArgumentParts& gradients);

/// The result of a differentiated function, taken apart.
template <class Result>
struct LossTraits {
  static constexpr bool kIsLoss = false;
};

template <>
struct LossTraits<Tensor> {
  static constexpr bool kIsLoss = true;
  static const Tensor& loss(const Tensor& result) { return result; }
  template <class Gradients>
  static Gradients without_value(const Tensor&, Gradients gradients) {
    return gradients;
  }
};

template <class Aux>
struct LossTraits<std::pair<Tensor, Aux>> {
  static constexpr bool kIsLoss = true;
  static const Tensor& loss(const std::pair<Tensor, Aux>& result) { return result.first; }
  template <class Gradients>
  static std::pair<Gradients, Aux> without_value(std::pair<Tensor, Aux> result, Gradients gradients) {
    return {std::move(gradients), std::move(result.second)};
  }
};

/// Returns the pair of f's result and its gradients with respect to the arguments at `positions`.
template <std::size_t... positions, class F, class... Args>
auto value_and_gradients(Positions<positions...>, const F& f, Args&&... args) {
  HeldArguments<Args...> arguments(std::forward<Args>(args)...);
  static_assert((Tree<std::remove_cvref_t<std::tuple_element_t<positions, HeldArguments<Args...>>>> && ...),
                "grad: an argument to differentiate must consist of tensors alone");
  std::tuple gradients = std::make_tuple(std::get<positions>(arguments)...);

  const ArgumentParts parts = collect_each(arguments);
  check_differentiable("grad", parts, {positions...});
  const GradCall call(parts, {positions...});
  auto result = call_with(f, arguments);
  using Loss = LossTraits<decltype(result)>;
  static_assert(Loss::kIsLoss, "grad: the function must return a Tensor or a std::pair<Tensor, Aux>");
  differentiate(call, Loss::loss(result), collect_each(gradients));
  call.leave(collect_parts(result));
  return std::make_pair(std::move(result), one_or_all(std::move(gradients)));
}

/// At the arguments `argnums` of a call, at the first if none is given.
template <int... argnums, class F, class... Args>
auto value_and_gradients_at(const F& f, Args&&... args) {
  return value_and_gradients(positions_or_first<sizeof...(Args), argnums...>(), f, std::forward<Args>(args)...);
}

}  // namespace internal

/// Returns a function with f's arguments that returns f's gradient with respect to one or several of them.
///
/// f: `(args...) -> []` or `(args...) -> ([], aux)`; the result: `(args...) -> gradient` or `-> (gradient, aux)`.
///
/// \tparam argnums Which arguments, each once, the first if none is given; negative numbers count from the end. For one
///     number the gradient has the type and the shapes of that argument, for several it is a std::tuple in their order.
/// \param f A function that can be called as const. A tensor that it does not use gets a gradient of zeros. A no_grad
///     in f is respected; one around the call does not stop the derivative, only what would be recorded outside.
/// \throws c10::ValueError from the call, if the result of f is not of shape [].
/// \throws c10::TypeError from the call, if that result is not of a floating type, or if a differentiated argument has
///     leaves of an integral or boolean type. All of these are listed.
/// Python: torch.func.grad.
template <int... argnums, class F>
auto grad(F f) {
  return [f = std::move(f)]<class... Args>(Args&&... args) {
    auto [result, gradients] = internal::value_and_gradients_at<argnums...>(f, std::forward<Args>(args)...);
    return internal::LossTraits<decltype(result)>::without_value(std::move(result), std::move(gradients));
  };
}

/// Returns a function with f's arguments that returns the pair of f's result and its gradient.
///
/// f: `(args...) -> []` or `(args...) -> ([], aux)`; the result: `(args...) -> ([], gradient)` or `-> (([], aux),
/// gradient)`. Everything else is as for `grad`. Python: torch.func.grad_and_value, jax.value_and_grad (whose order
/// this is).
template <int... argnums, class F>
auto value_and_grad(F f) {
  return [f = std::move(f)]<class... Args>(Args&&... args) {
    return internal::value_and_gradients_at<argnums...>(f, std::forward<Args>(args)...);
  };
}

}  // namespace graft
