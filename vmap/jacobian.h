// jacrev, jacfwd and hessian: all derivatives of a function with many results.
//
//   auto f = [](const Tensor& x) { return x.sin() * x.sum(); };       // [n] -> [n]
//   Tensor j = jacrev(f)(x);                                          // [n, n]: d f_i / d x_j
//   Tensor h = hessian([](const Tensor& x) { return x.sin().prod(); })(x);          // [n, n]
//   TensorDict jp = jacrev<0>(model)(params, x);                      // leaf "w" is [outputs..., w...]
//
// A Jacobian has, for each tensor of the result, the tree of the argument with tensors of shape [result...,
// argument...].
//
// | result | argument | Jacobian |
// |---|---|---|
// | Tensor | any | the type of the argument |
// | any | Tensor | the type of the result |
// | TensorDict | TensorDict | a TensorDict with leaves "result.argument" |
// | tuple, pair, vector, array of such | any | the same of Jacobians |
// | TensorDict | tuple, pair, vector, array | the same of Jacobians |
//
// With several argnums the argument is their std::tuple.
//
// jacrev runs the function once and its backward once for each element of the result, all at once under vmap; jacfwd
// runs a forward-mode derivative for each element of the argument. Take jacrev where there are fewer results, jacfwd
// where there are fewer arguments.
// Python: torch.func.jacrev, torch.func.jacfwd, torch.func.hessian.
#pragma once

#include <ATen/core/Tensor.h>
#include <absl/functional/function_ref.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "functional/internal/argnums.h"
#include "functional/internal/tangents.h"
#include "functional/jvp.h"
#include "functional/tree.h"
#include "functional/vjp.h"
#include "functional/with_aux.h"
#include "vmap/vmap.h"

namespace graft {

struct JacobianOptions {
  /// So many rows or columns at a time, std::nullopt for all at once: a smaller number saves memory.
  std::optional<int64_t> chunk_size = std::nullopt;

  /// What random operators do: see VmapOptions.
  Randomness randomness = Randomness::kError;
};

namespace internal {

using Tensors = std::vector<Tensor>;

/// For each tensor of the result, the derivatives by each tensor of the argument: [result..., argument...].
using JacobianBlocks = std::vector<Tensors>;

/// Returns the blocks, from the gradients of all inputs for a batch of cotangents of all outputs.
JacobianBlocks blocks_by_rows(const Tensors& outputs, const Tensors& inputs, const JacobianOptions& options,
                              absl::FunctionRef<Tensors(const Tensors& cotangents)> pull_back);

/// Returns the blocks, from the tangents of all outputs for a batch of tangents of all inputs.
JacobianBlocks blocks_by_columns(const Tensors& inputs, const JacobianOptions& options,
                                 absl::FunctionRef<Tensors(const Tensors& tangents)> push_forward);

/// Replaces the tensors of the parts, in order; TensorDicts lose their batch dims.
void set_unbatched(const std::vector<TreePart>& parts, const Tensors& tensors);

// --- The Jacobian as a tree. A cursor goes over the tensors of the result.

template <class T>
inline constexpr bool kIsList = false;
template <class... T>
inline constexpr bool kIsList<std::tuple<T...>> = true;
template <class A, class B>
inline constexpr bool kIsList<std::pair<A, B>> = true;

template <class T>
inline constexpr bool kIsSequence = false;
template <class T>
inline constexpr bool kIsSequence<std::vector<T>> = true;
template <class T, std::size_t n>
inline constexpr bool kIsSequence<std::array<T, n>> = true;

/// Applies `change` to each element of a list or sequence and returns the same kind of the results.
template <class... T, class Change>
auto map_elements(std::tuple<T...>& list, const Change& change) {
  return std::apply([&](T&... elements) { return std::tuple{change(elements)...}; }, list);
}
template <class A, class B, class Change>
auto map_elements(std::pair<A, B>& list, const Change& change) {
  auto first = change(list.first);
  return std::pair(std::move(first), change(list.second));
}
template <class T, class Change>
auto map_elements(std::vector<T>& list, const Change& change) {
  std::vector<decltype(change(list[0]))> results;
  for (T& element : list) results.push_back(change(element));
  return results;
}
template <class T, std::size_t n, class Change>
auto map_elements(std::array<T, n>& list, const Change& change) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) { return std::array{change(list[i])...}; }
  (std::make_index_sequence<n>());
}

/// Leaves of a result TensorDict, each with its blocks.
struct NamedBlocks {
  std::string path;
  const Tensors* blocks;
};

/// The Jacobian of a TensorDict by the part of the argument whose tensors begin at `first` (which moves on).
template <class Input>
auto jacobian_of_tree(const std::vector<NamedBlocks>& rows, Input& input, std::size_t& first) {
  if constexpr (std::is_same_v<Input, Tensor> || std::is_same_v<Input, TensorDict>) {
    TensorDict jacobian;
    for (const NamedBlocks& row : rows) {
      if constexpr (std::is_same_v<Input, Tensor>) {
        jacobian.set(row.path, (*row.blocks)[first]);
      } else {
        for (std::size_t i = 0; i < input.size(); ++i) {
          jacobian.set(row.path + "." + input.keys()->path(i), (*row.blocks)[first + i]);
        }
      }
    }
    if constexpr (std::is_same_v<Input, Tensor>) {
      ++first;
    } else {
      first += input.size();
    }
    return jacobian;
  } else {
    static_assert(kIsList<Input> || kIsSequence<Input>,
                  "jacobian: a TensorDict has a Jacobian by Tensors, TensorDicts and lists of these");
    return map_elements(input, [&](auto& element) { return jacobian_of_tree(rows, element, first); });
  }
}

template <class Output, class Input>
auto jacobian_of(Output& output, Input& input, const JacobianBlocks& blocks, std::size_t& cursor) {
  if constexpr (std::is_same_v<Input, Tensor>) {
    Output jacobian = output;
    Tensors tensors;
    for (std::size_t i = tensors_of(collect_parts(jacobian)).size(); i > 0; --i) tensors.push_back(blocks[cursor++][0]);
    set_tensors(collect_parts(jacobian), std::move(tensors));
    return jacobian;
  } else if constexpr (std::is_same_v<Output, Tensor>) {
    Input jacobian = input;
    set_unbatched(collect_parts(jacobian), blocks[cursor++]);
    return jacobian;
  } else if constexpr (std::is_same_v<Output, TensorDict>) {
    std::vector<NamedBlocks> rows;
    for (const auto& [path, leaf] : output.leaves()) rows.push_back({path, &blocks[cursor++]});
    std::size_t first = 0;
    return jacobian_of_tree(rows, input, first);
  } else {
    static_assert(kIsList<Output> || kIsSequence<Output>,
                  "jacobian: the result of the function must consist of Tensors, TensorDicts and lists of these");
    return map_elements(output, [&](auto& element) { return jacobian_of(element, input, blocks, cursor); });
  }
}

/// The Jacobian; with an auxiliary value the pair of both.
template <class Output, class Input, class... Aux>
auto assembled(Output& output, Input& input, const JacobianBlocks& blocks, Aux... aux) {
  std::size_t cursor = 0;
  auto jacobian = jacobian_of(output, input, blocks, cursor);
  if constexpr (sizeof...(Aux) == 0) {
    return jacobian;
  } else {
    return std::make_pair(std::move(jacobian), std::move(aux)...);
  }
}

template <std::size_t... positions, class F, class... Args>
auto jacrev_at(Positions<positions...> at, const JacobianOptions& options, const F& f, Args&&... args) {
  HeldArguments<Args...> arguments(std::forward<Args>(args)...);
  auto input = one_or_all(std::make_tuple(std::get<positions>(arguments)...));
  auto results = std::apply([&](auto&... held) { return vjp_at(at, f, held...); }, arguments);
  return std::apply(
      [&](auto& output, auto& pullback, auto&... aux) {
        const auto pull_back = [&](const Tensors& cotangents) {
          auto tree = output;
          set_tensors(collect_parts(tree), cotangents);
          auto gradients = pullback(tree);
          return tensors_of(collect_parts(gradients));
        };
        const JacobianBlocks blocks =
            blocks_by_rows(tensors_of(collect_parts(output)), tensors_of(collect_parts(input)), options, pull_back);
        return assembled(output, input, blocks, std::move(aux)...);
      },
      results);
}

template <std::size_t... positions, class F, class... Args>
auto jacfwd_at(Positions<positions...> at, const JacobianOptions& options, const F& f, Args&&... args) {
  HeldArguments<Args...> arguments(std::forward<Args>(args)...);
  std::tuple inputs = std::make_tuple(std::get<positions>(arguments)...);
  check_differentiable("jacfwd", collect_each(arguments), {positions...});
  const auto run = [&](auto tangents) {
    return std::apply([&](auto&... held) { return jvp_at(at, f, std::make_tuple(held...), std::move(tangents)); },
                      arguments);
  };
  std::optional<decltype(run(inputs))> results;  // of the first batch: the value is the same in all
  const auto push_forward = [&](const Tensors& tangents) {
    auto tree = inputs;
    set_tensors(collect_parts(tree), tangents);
    auto now = run(std::move(tree));
    if (!results) results = now;
    return tensors_of(collect_parts(std::get<1>(now)));
  };
  const JacobianBlocks blocks = blocks_by_columns(tensors_of(collect_parts(inputs)), options, push_forward);
  auto input = one_or_all(std::move(inputs));
  return std::apply(
      [&](auto& output, auto&, auto&... aux) { return assembled(output, input, blocks, std::move(aux)...); }, *results);
}

}  // namespace internal

/// Returns a function with f's arguments that returns f's Jacobian, by backward derivatives; with WithAux the pair of
/// it and the auxiliary value.
///
/// \tparam argnums Which arguments, each once; the first if none is given; negative numbers count from the end.
/// \param f A function that can be called as const and returns a tree of tensors, see the head of this file.
/// \throws as vjp does, and c10::ValueError for a chunk_size that is not positive.
/// Python: torch.func.jacrev.
template <int... argnums, class F>
auto jacrev(F f, JacobianOptions options = {}) {
  return [f = std::move(f), options]<class... Args>(Args&&... args) {
    return internal::jacrev_at(internal::positions_or_first<sizeof...(Args), argnums...>(), options, f,
                               std::forward<Args>(args)...);
  };
}

/// The same by forward-mode derivatives.
/// \throws as jvp does, and c10::ValueError for a chunk_size that is not positive.
/// Python: torch.func.jacfwd.
template <int... argnums, class F>
auto jacfwd(F f, JacobianOptions options = {}) {
  return [f = std::move(f), options]<class... Args>(Args&&... args) {
    return internal::jacfwd_at(internal::positions_or_first<sizeof...(Args), argnums...>(), options, f,
                               std::forward<Args>(args)...);
  };
}

/// Returns a function with f's arguments that returns f's second derivatives: the Jacobian (forward) of the Jacobian
/// (backward).
///
/// For f: `[n] -> []` it is [n, n]; for a TensorDict it has leaves "a.b" of shape [a..., b...]; for several argnums it
/// is a std::tuple of std::tuples. \throws as jacrev and jacfwd do. Python: torch.func.hessian.
template <int... argnums, class F>
auto hessian(F f, JacobianOptions options = {}) {
  return jacfwd<argnums...>(jacrev<argnums...>(std::move(f), options), options);
}

}  // namespace graft
