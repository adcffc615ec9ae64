// jvp: the value of a function and its derivative along a direction, in one pass forward.
//
//   auto f = [](const TensorDict& p, const Tensor& x) { return x.matmul(p["w"]).tanh(); };
//   auto [y, dy] = jvp(f, std::tuple(params, x), std::tuple(dparams, dx));   // y and dy are shaped like f's result
//   auto [z, dz] = jvp<0>(f, std::tuple(params, x), dparams);                // x is held fixed
//   auto [u, du] = jvp(g, x, dx);                                            // g has one argument
//
// The cost is about that of two calls of f, and nothing is recorded. It needs an operator's forward-mode derivative;
// where LibTorch has none, `linearize` (functional/linearize.h) gives the same from backward derivatives.
// Python: torch.func.jvp, jax.jvp.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "functional/internal/argnums.h"
#include "functional/internal/grad_call.h"
#include "functional/internal/tangents.h"
#include "functional/internal/transform_level.h"
#include "functional/tree.h"
#include "functional/with_aux.h"

namespace graft {
namespace internal {

/// The untyped core of one call; the level is open during its life.
class JvpCall {
 public:
  /// Gives the tensors of `arguments` tangents.
  JvpCall(const std::vector<TreePart>& arguments, const std::vector<TreePart>& tangents);

  /// Replaces the tensors of `results` by what they are outside, and those of `tangents`, a copy of `results`, by their
  /// tangents.
  void leave(const std::vector<TreePart>& results, const std::vector<TreePart>& tangents) const;
  void leave(const std::vector<TreePart>& parts) const;

 private:
  JvpLevel level_;
};

template <class T>
inline constexpr bool kIsArgumentList = false;
template <class... Arguments>
inline constexpr bool kIsArgumentList<std::tuple<Arguments...>> = true;

/// A list of arguments as a tuple.
template <class Arguments>
auto as_arguments(const Arguments& arguments) {
  if constexpr (kIsArgumentList<Arguments>) {
    return arguments;
  } else {
    return std::tuple<Arguments>(arguments);
  }
}

template <std::size_t... positions, class F, class Arguments, class Tangents>
auto jvp_at(Positions<positions...>, const F& f, Arguments arguments, Tangents tangents) {
  static_assert(std::is_same_v<Tangents, std::tuple<std::tuple_element_t<positions, Arguments>...>>,
                "jvp: the tangents must have the types of the differentiated arguments, in their order");
  static_assert((Tree<std::tuple_element_t<positions, Arguments>> && ...),
                "jvp: an argument to differentiate must consist of tensors alone; name the others by argnums");
  check_differentiable("jvp", collect_each(arguments), {positions...});
  std::vector<TreePart> differentiated;
  std::size_t index = 0;
  (collect_element(std::get<positions>(arguments), "", index++, differentiated), ...);
  const JvpCall call(differentiated, collect_parts(tangents));
  auto result = call_with(f, arguments);
  auto& output = output_of(result);
  static_assert(Tree<std::remove_reference_t<decltype(output)>>,
                "jvp: the function must return tensors alone, see functional/tree.h; or WithAux{result, other things}");
  auto output_tangents = output;
  call.leave(collect_parts(output), collect_parts(output_tangents));
  call.leave(aux_parts(result));
  return output_with(std::move(result), std::move(output_tangents));
}

}  // namespace internal

/// Returns the pair of f's result and its tangent, which has the result's type; with WithAux the tuple of both and the
/// auxiliary value.
///
/// \tparam argnums Which arguments, each once; all if none is given; negative numbers count from the end.
/// \param f A function that can be called as const and returns a tree of tensors.
/// \param arguments A std::tuple of f's arguments, or the only one (which is then no std::tuple itself).
/// \param tangents A std::tuple of the directions, of the types of the differentiated arguments, or the only one. A
///     tangent of a result that does not depend on any of them is zero.
/// \throws c10::ValueError listing each tangent whose shape or dtype is not that of its argument.
/// \throws c10::TypeError listing the tensors of differentiated arguments that are not of a floating type.
/// \throws c10::NotImplementedError (from LibTorch) if an operator has no forward-mode derivative.
/// Python: torch.func.jvp.
template <int... argnums, class F, class Arguments, class Tangents>
auto jvp(const F& f, const Arguments& arguments, const Tangents& tangents) {
  auto tuple = internal::as_arguments(arguments);
  constexpr auto positions = internal::positions_or_all<std::tuple_size_v<decltype(tuple)>, argnums...>();
  return internal::jvp_at(positions, f, std::move(tuple), internal::as_arguments(tangents));
}

}  // namespace graft
