#include "tensordict/nested_sizes.h"

#include <iterator>
#include <utility>

#include "tensordict/internal/sizes.h"
#include "tensordict/nested_key.h"

namespace graft {
namespace {

using internal::joined;

std::vector<int64_t> without_first(const std::vector<int64_t>& sizes, std::size_t dims) {
  return dims < sizes.size() ? std::vector<int64_t>(sizes.begin() + static_cast<std::ptrdiff_t>(dims), sizes.end())
                             : std::vector<int64_t>();
}

}  // namespace

const std::vector<int64_t>& NestedSizes::at(std::string_view path) const {
  static const auto* const none = new std::vector<int64_t>;
  for (std::string_view part = path; !part.empty(); part = parent_path(part)) {
    const auto found = parts_.find(part);
    if (found != parts_.end()) return found->second;
  }
  return *none;
}

NestedSizes NestedSizes::below(std::string_view path) const {
  const std::size_t own_dims = at(path).size();
  NestedSizes result;
  for (const auto& [part, sizes] : parts_) {
    if (is_below(part, path)) result.insert(part.substr(path.size() + 1), without_first(sizes, own_dims));
  }
  return result;
}

void NestedSizes::set(std::string_view path, const std::vector<int64_t>& sizes, const NestedSizes& inner) {
  parts_[std::string(path)] = sizes;
  for (const auto& [part, beyond] : inner.parts()) parts_[join_path(path, part)] = joined(sizes, beyond);
  follow({}, {});
}

void NestedSizes::follow(const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  Parts old;
  std::swap(old, parts_);
  for (const auto& [part, sizes] : old) insert(part, without_first(joined(before, sizes), after.size()));
}

void NestedSizes::keep(const std::function<bool(const std::string&)>& is_part) {
  std::erase_if(parts_, [&](const auto& part) { return !is_part(part.first); });
}

void NestedSizes::insert(const std::string& path, std::vector<int64_t> sizes) {
  if (sizes.size() > at(path).size()) parts_[path] = std::move(sizes);
}

}  // namespace graft
