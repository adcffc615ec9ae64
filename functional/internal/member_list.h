// The members of a class as the arguments of a macro: pointers to them, and their names.
#pragma once

#include <cstddef>
#include <string_view>

namespace graft::internal {

/// Returns the `position`th name of a list such as "weight, bias".
constexpr std::string_view nth_name(std::string_view list, std::size_t position) {
  for (; position > 0; --position) list.remove_prefix(list.find(',') + 1);
  while (list.front() == ' ') list.remove_prefix(1);
  return list.substr(0, list.find_first_of(" ,"));
}

}  // namespace graft::internal

/// Turns `Type, a, b` into `&Type::a, &Type::b`, by a macro that calls itself again until its arguments are used up.
#define GRAFT_INTERNAL_MEMBER_POINTERS(Type, ...) GRAFT_INTERNAL_EXPAND(GRAFT_INTERNAL_MEMBERS(Type, __VA_ARGS__))
#define GRAFT_INTERNAL_PARENTHESES ()
#define GRAFT_INTERNAL_EXPAND(...) GRAFT_INTERNAL_EXPAND3(GRAFT_INTERNAL_EXPAND3(GRAFT_INTERNAL_EXPAND3(__VA_ARGS__)))
#define GRAFT_INTERNAL_EXPAND3(...) GRAFT_INTERNAL_EXPAND2(GRAFT_INTERNAL_EXPAND2(GRAFT_INTERNAL_EXPAND2(__VA_ARGS__)))
#define GRAFT_INTERNAL_EXPAND2(...) GRAFT_INTERNAL_EXPAND1(GRAFT_INTERNAL_EXPAND1(GRAFT_INTERNAL_EXPAND1(__VA_ARGS__)))
#define GRAFT_INTERNAL_EXPAND1(...) __VA_ARGS__
#define GRAFT_INTERNAL_MEMBERS(Type, first, ...) \
  &Type::first __VA_OPT__(, GRAFT_INTERNAL_MEMBERS_AGAIN GRAFT_INTERNAL_PARENTHESES(Type, __VA_ARGS__))
#define GRAFT_INTERNAL_MEMBERS_AGAIN() GRAFT_INTERNAL_MEMBERS
