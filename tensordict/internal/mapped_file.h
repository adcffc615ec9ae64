// A tensor whose data is a file.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace graft::internal {

enum class Mapping {
  kShared,   // what is written into the tensor is written into the file
  kPrivate,  // what is written into the tensor stays in memory
};

/// Maps the whole of an open file, which has as many bytes as the tensor. The descriptor may be closed afterwards, and
/// the file renamed or removed: the data lives as long as the tensor. A tensor without elements has memory of its own.
/// \throws c10::Error with the system's words if the file cannot be mapped.
at::Tensor map_file(int descriptor, const std::vector<int64_t>& sizes, at::ScalarType dtype, Mapping mapping);

}  // namespace graft::internal
