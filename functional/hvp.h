// Products with second derivatives that never build a matrix: of the Hessian, of its Gauss-Newton approximation and of
// the Fisher matrix.
//
//   TensorDict hv = hvp(loss, params, v);                          // H v, shaped like params
//   TensorDict gv = ggn_vector_product(model, loss, params, v);    // J^T H_loss J v
//   TensorDict fv = fisher_vector_product(losses, params, v);      // 1/n sum_i g_i g_i^T v
//
// Each costs a few runs of the function, whatever the number of parameters. Functions of several arguments are given
// these as a std::tuple, as to jvp: `hvp<0>(loss, std::tuple(params, x), v)`.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include "functional/grad.h"
#include "functional/internal/argnums.h"
#include "functional/jvp.h"
#include "functional/vjp.h"
#include "functional/with_aux.h"

namespace graft {
namespace internal {

/// f's gradient at some arguments, as a function that vjp and jvp take.
template <std::size_t... positions, class F>
auto gradient_at(Positions<positions...>, const F& f) {
  return [&f](const auto&... arguments) {
    auto [result, gradients] = value_and_gradients(Positions<positions...>(), f, arguments...);
    if constexpr (std::is_same_v<decltype(result), Tensor>) {
      return std::move(gradients);
    } else {
      return WithAux{std::move(gradients), std::move(result.second)};
    }
  };
}

/// What is left of the results of jvp or of a pulled back vjp.
template <class Product>
Product with_aux(Product product) {
  return product;
}
template <class Product, class Aux>
std::pair<Product, Aux> with_aux(Product product, Aux aux) {
  return {std::move(product), std::move(aux)};
}

template <std::size_t... positions, class F, class Arguments, class Tangents>
auto hvp_at(Positions<positions...> at, const F& f, Arguments arguments, Tangents tangents) {
  auto results = jvp_at(at, gradient_at(at, f), std::move(arguments), std::move(tangents));
  return std::apply([](auto&, auto& product, auto&... aux) { return with_aux(std::move(product), std::move(aux)...); },
                    results);
}

template <std::size_t... positions, class F, class Arguments, class Tangents>
auto vhp_at(Positions<positions...> at, const F& f, const Arguments& arguments, const Tangents& tangents) {
  const auto gradient = gradient_at(at, f);
  auto results = std::apply([&](const auto&... args) { return vjp_at(at, gradient, args...); }, arguments);
  return std::apply(
      [&](auto&, auto& pullback, auto&... aux) { return with_aux(pullback(one_or_all(tangents)), std::move(aux)...); },
      results);
}

}  // namespace internal

/// Returns the product of the Hessian of f with a vector, which has the type of the differentiated argument (a
/// std::tuple if these are several); with an auxiliary value the pair of both. Forward over reverse: it needs
/// forward-mode derivatives of f's backward.
///
/// \tparam argnums Which arguments, each once; all if none is given. With several the Hessian is that in all of
///     them together.
/// \param f A function that returns a Tensor of shape [] or a std::pair of one and an auxiliary value.
/// \param arguments, vector As the arguments and the tangents of jvp (functional/jvp.h).
/// \throws as grad and jvp do.
/// Python: torch.autograd.functional.hvp; the form of torch.func is jvp of grad.
template <int... argnums, class F, class Arguments, class Vector>
auto hvp(const F& f, const Arguments& arguments, const Vector& vector) {
  auto tuple = internal::as_arguments(arguments);
  constexpr auto positions = internal::positions_or_all<std::tuple_size_v<decltype(tuple)>, argnums...>();
  return internal::hvp_at(positions, f, std::move(tuple), internal::as_arguments(vector));
}

/// The same product, by reverse over reverse: for functions whose operators lack forward-mode derivatives. It costs
/// more. Python: torch.autograd.functional.vhp.
template <int... argnums, class F, class Arguments, class Vector>
auto vhp(const F& f, const Arguments& arguments, const Vector& vector) {
  const auto tuple = internal::as_arguments(arguments);
  constexpr auto positions = internal::positions_or_all<std::tuple_size_v<decltype(tuple)>, argnums...>();
  return internal::vhp_at(positions, f, tuple, internal::as_arguments(vector));
}

/// Returns J^T H J v: J is the Jacobian of `model` at `params`, H the Hessian of `loss` at model(params). Where the
/// loss is convex in the model's output, it is positive semi-definite, unlike the Hessian of the whole.
///
/// \param model `params -> outputs`, trees of tensors.
/// \param loss `outputs -> []`.
/// \param vector Shaped like params.
/// Schraudolph, "Fast curvature matrix-vector products for second-order gradient descent", 2002.
template <class Model, class Loss, class Params>
Params ggn_vector_product(const Model& model, const Loss& loss, const Params& params, const Params& vector) {
  const auto [outputs, along] = jvp(model, std::tuple(params), std::tuple(vector));
  const auto [same_outputs, pullback] = vjp(model, params);
  return pullback(hvp(loss, std::tuple(outputs), std::tuple(along)));
}

/// Returns 1/n sum_i g_i (g_i^T v), g_i the gradient of the ith loss: the empirical Fisher matrix times a vector. (The
/// Fisher matrix under the model's own distribution is that of ggn_vector_product for losses that are negative
/// log-likelihoods of an exponential family, as cross-entropy is.)
///
/// \param losses `params -> [n]`, the losses of n samples.
/// \param vector Shaped like params.
/// \throws c10::ValueError if `losses` returns another shape.
/// Martens, "New insights and perspectives on the natural gradient method", 2020, section 11.
template <class Losses, class Params>
Params fisher_vector_product(const Losses& losses, const Params& params, const Params& vector) {
  const auto [values, along] = jvp(losses, std::tuple(params), std::tuple(vector));
  TORCH_CHECK_VALUE(values.dim() == 1, "fisher_vector_product: the losses have shape ", values.sizes(),
                    ", expected [n], one for each sample");
  const auto [same_values, pullback] = vjp(losses, params);
  return pullback(along / values.size(0));
}

}  // namespace graft
