// linearize: the value of a function, and its derivative at that point as a linear function.
//
//   auto [y, pushforward] = linearize<0>(model, params, x);
//   Tensor dy = pushforward(dparams);                     // shaped like y, as often as one likes; model does not run
//   again
//
// It differentiates backward derivatives, so it also works where LibTorch has no forward-mode derivative. For one
// direction alone jvp (functional/jvp.h) costs less.
// Python: torch.func.linearize (which traces); jax.linearize.
#pragma once

#include <ATen/ops/zeros_like.h>

#include <utility>

#include "functional/internal/argnums.h"
#include "functional/internal/tangents.h"
#include "functional/tree.h"
#include "functional/vjp.h"
#include "functional/with_aux.h"

namespace graft {

/// The derivative of a function at a point. Copies share what the function recorded.
/// Tangents: the type of the differentiated argument, or a std::tuple of several; Output: that of the result.
template <class Tangents, class Output>
class Pushforward {
 public:
  Pushforward(Pullback<Tangents, Output> transpose, Tangents arguments)
      : transpose_(std::move(transpose)), arguments_(std::move(arguments)) {}

  /// Returns the derivative of the result along `tangents`.
  /// \throws c10::ValueError listing each tensor whose shape or dtype is not that of its argument.
  Output operator()(const Tangents& tangents) const {
    Tangents given = tangents, expected = arguments_;
    internal::tensors_like("linearize", "tangents", "arguments", collect_parts(given), collect_parts(expected));
    return transpose_(tangents);
  }

 private:
  Pullback<Tangents, Output> transpose_;
  Tangents arguments_;
};

/// Returns the pair of f's result and a Pushforward; with WithAux the tuple of both and the auxiliary value.
/// \tparam argnums Which arguments, each once; all if none is given; negative numbers count from the end.
/// Everything else is as for vjp (functional/vjp.h).
/// Python: torch.func.linearize.
template <int... argnums, class F, class... Args>
auto linearize(const F& f, Args&&... args) {
  auto results = vjp<argnums...>(f, std::forward<Args>(args)...);
  const auto& output = std::get<0>(results);
  const auto& pullback = std::get<1>(results);
  // The pullback is linear, so its own pullback, wherever it is taken, is the derivative.
  auto zeros = output;
  for (const TreePart& part : collect_parts(zeros)) {
    replace_tensors(part, [](const Tensor& tensor) { return at::zeros_like(tensor); });
  }
  auto [gradients, transpose] = vjp(pullback, zeros);
  Pushforward pushforward(std::move(transpose), std::move(gradients));
  if constexpr (std::tuple_size_v<decltype(results)> == 3) {
    return std::make_tuple(output, std::move(pushforward), std::get<2>(results));
  } else {
    return std::make_pair(output, std::move(pushforward));
  }
}

}  // namespace graft
