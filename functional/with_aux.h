// WithAux: a result with something beside it that is handed out and not differentiated.
//
//   auto f = [](const Tensor& x) { return WithAux{x.square(), Tensor(x.norm())}; };
//   auto [y, pullback, norm] = vjp(f, x);
//
// For the functions that vjp, jvp and what is built on them take. (grad takes a std::pair, because what it
// differentiates can only be a Tensor; here a pair is a result of two parts.)
// Python: has_aux=True.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "functional/tree.h"

namespace graft {

template <class Output, class Aux>
struct WithAux {
  Output output;
  Aux aux;
};
template <class Output, class Aux>
WithAux(Output, Aux) -> WithAux<Output, Aux>;

namespace internal {

template <class Result>
struct AuxTraits {
  static constexpr bool kHasAux = false;
  using Output = Result;
};
template <class Out, class Aux>
struct AuxTraits<WithAux<Out, Aux>> {
  static constexpr bool kHasAux = true;
  using Output = Out;
};
template <class Result>
inline constexpr bool kHasAux = AuxTraits<std::remove_cvref_t<Result>>::kHasAux;

/// Returns what is differentiated of a result.
template <class Result>
auto& output_of(Result& result) {
  if constexpr (kHasAux<Result>) {
    return result.output;
  } else {
    return result;
  }
}

/// Returns the pair of what is differentiated and `second`; with an auxiliary value the tuple of all three.
template <class Result, class Second>
auto output_with(Result result, Second second) {
  if constexpr (kHasAux<Result>) {
    return std::make_tuple(std::move(result.output), std::move(second), std::move(result.aux));
  } else {
    return std::make_pair(std::move(result), std::move(second));
  }
}

/// Returns the parts of what is beside the result.
template <class Result>
std::vector<TreePart> aux_parts(Result& result) {
  if constexpr (kHasAux<Result>) {
    return collect_parts(result.aux);
  } else {
    return {};
  }
}

}  // namespace internal
}  // namespace graft
