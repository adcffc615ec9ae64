#include "vmap/in_dims.h"

#include <c10/util/Exception.h>

#include <charconv>

namespace graft {
namespace {

/// The first step of a path, "[3]", "[key]" or ".name", and what is left.
struct Step {
  std::string_view name;
  std::string_view rest;
};

Step first_step(std::string_view path) {
  if (path.front() == '[') {
    const std::size_t end = path.find(']');
    return {path.substr(1, end - 1), path.substr(end + 1)};
  }
  if (path.front() == '.') path.remove_prefix(1);
  const std::size_t end = path.find_first_of(".[");
  return end == std::string_view::npos ? Step{path, ""} : Step{path.substr(0, end), path.substr(end)};
}

std::optional<std::size_t> as_index(std::string_view name) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(index) : std::nullopt;
}

/// Returns what is left of `path` below `name`, which may have several steps; nothing if it is not below it.
std::optional<std::string_view> path_below(std::string_view path, std::string_view name) {
  if (path.front() == '[') {
    const Step step = first_step(path);
    return step.name == name ? std::optional(step.rest) : std::nullopt;
  }
  if (path.front() == '.') path.remove_prefix(1);
  if (path.substr(0, name.size()) != name) return std::nullopt;
  path.remove_prefix(name.size());
  return path.empty() || path.front() == '.' || path.front() == '[' ? std::optional(path) : std::nullopt;
}

}  // namespace

std::vector<MappedDims> MappedDims::for_each(std::size_t count, const char* option, const char* values) const {
  const auto* const list = std::get_if<std::vector<MappedDims>>(&dims_);
  if (list == nullptr) return std::vector<MappedDims>(count, *this);
  TORCH_CHECK_VALUE(list->size() == count, "vmap: ", option, " has ", list->size(), " entries, but there are ", count,
                    " ", values);
  return *list;
}

const MappedDims& MappedDims::below(std::string_view path, const char* option) const {
  if (path.empty() || one() != nullptr) return *this;
  if (const auto* const list = std::get_if<std::vector<MappedDims>>(&dims_)) {
    const Step step = first_step(path);
    const std::optional<std::size_t> index = as_index(step.name);
    TORCH_CHECK_VALUE(index && *index < list->size(), "vmap: ", option, " has a list of ", list->size(),
                      " dims where the value has an element ", step.name);
    return (*list)[*index].below(step.rest, option);
  }
  for (const auto& [name, dims] : std::get<Named>(dims_)) {
    if (const auto rest = path_below(path, name)) return dims.below(*rest, option);
  }
  C10_THROW_ERROR(ValueError, c10::str("vmap: ", option, " has no dim for ", path));
}

void MappedDims::check_places(const std::vector<std::string_view>& paths, const char* option) const {
  if (const MappedDim* const dim = one()) {
    TORCH_CHECK_VALUE(!paths.empty() || !*dim, "vmap: ", option, " has dim ", dim->value_or(0),
                      " for a place where the value has no tensor, expected std::nullopt");
    return;
  }
  const auto* const list = std::get_if<std::vector<MappedDims>>(&dims_);
  const std::size_t count = list != nullptr ? list->size() : std::get<Named>(dims_).size();
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::string_view> below;
    for (const std::string_view path : paths) {
      if (path.empty()) continue;
      const auto rest = path_below(path, list != nullptr ? std::to_string(i) : std::get<Named>(dims_)[i].first);
      if (rest) below.push_back(*rest);
    }
    (list != nullptr ? (*list)[i] : std::get<Named>(dims_)[i].second).check_places(below, option);
  }
}

MappedDims by_name(MappedDims::Named dims) { return MappedDims(std::move(dims)); }

}  // namespace graft
