// Which dim of each argument vmap maps over, and where the mapped dim goes in each result.
//
//   MappedDims dims = 0;                             // dim 0 of every tensor of every argument
//   MappedDims dims = {std::nullopt, 0, -1};         // the first argument is not mapped, the third over its last dim
//   MappedDims dims = {{0, std::nullopt}, 1};        // the first argument is a pair, of which the second is not mapped
//   MappedDims dims = {by_name({{"encoder", 0}, {"bias", std::nullopt}})};   // leaves of a TensorDict, fields of a
//   struct
//
// "Not mapped" is std::nullopt; negative dims count from the end. A dim stands for all tensors below the place where it
// is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace graft {

/// A dim to map over, or none.
using MappedDim = std::optional<int64_t>;

/// One dim for all tensors of a value, or dims for each of its parts.
class MappedDims {
 public:
  using Named = std::vector<std::pair<std::string, MappedDims>>;

  /// Dim 0 of every value.
  MappedDims() : MappedDims(0) {}

  /// The same dim of every value.
  MappedDims(int64_t dim) : dims_(MappedDim(dim)) {}  // NOLINT(google-explicit-constructor)
  MappedDims(MappedDim dim) : dims_(dim) {}           // NOLINT(google-explicit-constructor)

  /// No value is mapped.
  MappedDims(std::nullopt_t) : dims_(MappedDim()) {}  // NOLINT(google-explicit-constructor)

  /// Dims for each value, or for each element of a tuple, pair, vector or array.
  MappedDims(std::initializer_list<MappedDims> dims) : dims_(std::vector<MappedDims>(dims)) {}
  explicit MappedDims(std::vector<MappedDims> dims) : dims_(std::move(dims)) {}

  /// See by_name.
  explicit MappedDims(Named dims) : dims_(std::move(dims)) {}

  /// Returns the dims of each of `count` values.
  /// \throws c10::ValueError naming `option` ("in_dims") and `values` ("arguments"), if it holds another number of
  /// dims.
  std::vector<MappedDims> for_each(std::size_t count, const char* option, const char* values) const;

  /// Returns what is given for the part at `path` of a value (a path of a TreePart, see functional/tree.h, or of a leaf
  /// of a TensorDict): dims of its own, or one that stands for all.
  /// \throws c10::ValueError naming `option`, if there is nothing for that place.
  const MappedDims& below(std::string_view path, const char* option) const;

  /// Checks that every dim stands for something, given the paths of all leaves of the value.
  /// \throws c10::ValueError naming `option`, if a dim is given for a place where there is nothing.
  void check_places(const std::vector<std::string_view>& paths, const char* option) const;

  /// The dim, if one stands for all.
  const MappedDim* one() const { return std::get_if<MappedDim>(&dims_); }

 private:
  std::variant<MappedDim, std::vector<MappedDims>, Named> dims_;
};

/// Dims by the names of leaves of a TensorDict (a name of a subtree stands for all leaves below it), of fields of a
/// GRAFT_TREE struct, or by keys of a std::map. Every tensor must have one.
MappedDims by_name(MappedDims::Named dims);

/// For the arguments of a mapped function.
using InDims = MappedDims;

/// For the elements of a result that is a std::tuple or a std::pair, else for the result.
using OutDims = MappedDims;

}  // namespace graft
