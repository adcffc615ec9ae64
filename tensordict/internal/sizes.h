// Lists of sizes.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace graft::internal {

inline std::vector<int64_t> joined(c10::IntArrayRef front, c10::IntArrayRef back) {
  std::vector<int64_t> sizes = front.vec();
  sizes.insert(sizes.end(), back.begin(), back.end());
  return sizes;
}

inline bool starts_with(c10::IntArrayRef sizes, c10::IntArrayRef prefix) {
  return sizes.size() >= prefix.size() && sizes.slice(0, prefix.size()).equals(prefix);
}

}  // namespace graft::internal
