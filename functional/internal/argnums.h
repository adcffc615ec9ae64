// Arguments by number, as template parameters: grad<0, -1>(f).
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <tuple>
#include <utility>

namespace graft::internal {

/// Returns the position of argument `argnum`, which counts from the end if it is negative.
template <int argnum, std::size_t count>
constexpr std::size_t argument_position() {
  constexpr int position = argnum < 0 ? argnum + static_cast<int>(count) : argnum;
  static_assert(position >= 0 && position < static_cast<int>(count), "the function has no argument of that number");
  return static_cast<std::size_t>(position);
}

template <std::size_t... positions>
using Positions = std::index_sequence<positions...>;

/// Whether each position is given once.
constexpr bool are_distinct(std::initializer_list<std::size_t> positions) {
  return std::all_of(positions.begin(), positions.end(), [&](std::size_t position) {
    return std::count(positions.begin(), positions.end(), position) == 1;
  });
}

/// The positions of `argnums` among `count` arguments. One that is given twice has two tangents, or columns of zeros.
template <std::size_t count, int... argnums>
constexpr auto positions_of() {
  static_assert(are_distinct({argument_position<argnums, count>()...}), "an argument is named twice");
  return Positions<argument_position<argnums, count>()...>();
}

/// The positions of `argnums` among `count` arguments: of all if there are none.
template <std::size_t count, int... argnums>
constexpr auto positions_or_all() {
  if constexpr (sizeof...(argnums) == 0) {
    return std::make_index_sequence<count>();
  } else {
    return positions_of<count, argnums...>();
  }
}

/// The same, but of the first if there are none.
template <std::size_t count, int... argnums>
constexpr auto positions_or_first() {
  static_assert(count > 0, "the function has no argument to differentiate");
  if constexpr (sizeof...(argnums) == 0) {
    return Positions<0>();
  } else {
    return positions_of<count, argnums...>();
  }
}

/// One value stands for itself, several are a tuple.
template <class... Values>
auto one_or_all(std::tuple<Values...> values) {
  if constexpr (sizeof...(Values) == 1) {
    return std::get<0>(std::move(values));
  } else {
    return values;
  }
}

}  // namespace graft::internal
