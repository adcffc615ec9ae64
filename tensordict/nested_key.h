// Dotted paths such as "encoder.layers.0.weight": how they are checked and joined.
#pragma once

#include <string>
#include <string_view>

namespace graft {

/// Checks that `path` is one or more non-empty names joined by dots.
/// \throws c10::ValueError otherwise.
void check_path(std::string_view path);

/// Joins two paths with a dot; an empty `prefix` or an empty `name` stands for "here".
std::string join_path(std::string_view prefix, std::string_view name);

/// Returns `path` without its last name: "a.b" for "a.b.c", and "" for "a".
std::string_view parent_path(std::string_view path);

/// Says whether `path` lies below `prefix` (not at it): "a.b" lies below "a", "ab" does not.
bool is_below(std::string_view path, std::string_view prefix);

}  // namespace graft
