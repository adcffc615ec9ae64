#include "tensordict/nested_key.h"

#include <c10/util/Exception.h>

namespace graft {

void check_path(std::string_view path) {
  const bool well_formed =
      !path.empty() && path.front() != '.' && path.back() != '.' && path.find("..") == std::string_view::npos;
  TORCH_CHECK_VALUE(well_formed, "TensorDict: \"", path,
                    "\" is not a path; a path is one or more non-empty names joined by dots, such as \"fc1.weight\"");
}

std::string join_path(std::string_view prefix, std::string_view name) {
  std::string path(prefix);
  if (!prefix.empty() && !name.empty()) path += '.';
  path += name;
  return path;
}

std::string_view parent_path(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

bool is_below(std::string_view path, std::string_view prefix) {
  return path.size() > prefix.size() && path[prefix.size()] == '.' && path.substr(0, prefix.size()) == prefix;
}

}  // namespace graft
