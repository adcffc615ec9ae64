// Which dim of each argument vmap maps over, and where the mapped dim goes in each result.
//
//   InDims dims = 0;                       // dim 0 of every argument
//   InDims dims = {std::nullopt, 0, -1};   // the first argument is not mapped, the third over its last dim
//
// "Not mapped" is std::nullopt; negative dims count from the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

namespace graft {

/// A dim to map over, or none.
using MappedDim = std::optional<int64_t>;

/// One dim for all values, or one for each.
class MappedDims {
 public:
  /// Dim 0 of every value.
  MappedDims() : MappedDims(0) {}

  /// The same dim of every value.
  MappedDims(int64_t dim) : dims_{dim} {}  // NOLINT(google-explicit-constructor)

  /// No value is mapped.
  MappedDims(std::nullopt_t) : dims_{std::nullopt} {}  // NOLINT(google-explicit-constructor)

  /// One dim for each value.
  MappedDims(std::initializer_list<MappedDim> dims) : dims_(dims), one_each_(true) {}
  explicit MappedDims(std::vector<MappedDim> dims) : dims_(std::move(dims)), one_each_(true) {}

  /// Returns one dim for each of `count` values.
  /// \throws c10::ValueError naming `option` ("in_dims") and `values` ("arguments"), if it holds another number of
  /// dims.
  std::vector<MappedDim> for_each(std::size_t count, const char* option, const char* values) const;

 private:
  std::vector<MappedDim> dims_;
  bool one_each_ = false;
};

/// For the arguments of a mapped function.
using InDims = MappedDims;

/// For the elements of a result that is a std::tuple or a std::pair, else for the result.
using OutDims = MappedDims;

}  // namespace graft
