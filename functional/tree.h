// Trees of tensors: which values the transforms look into, and where their tensors are.
//
// A tree is a Tensor, a TensorDict, or a std::tuple, std::pair, std::vector, std::array, std::optional or std::map of
// trees, or a struct of yours after one line outside any namespace:
//
//   struct Batch { torch::Tensor x, y; };
//   GRAFT_TREE(Batch, x, y)
//
// The transforms take a tree as an argument and give it back as a result. Any other value is opaque: it reaches the
// function as it is; so do fields that GRAFT_TREE does not name.
//
//   std::pair<TensorDict, std::vector<Tensor>> value = ...;
//   for (const TreePart& part : collect_parts(value)) std::cout << part.path;   // [0][1][0][1][1]
//
// It is not for walking the leaves of a TensorDict: a TensorDict is one part, with its own paths below it.
// torch.func takes the trees of torch.utils._pytree, JAX those of jax.tree_util.
#pragma once

#include <ATen/core/Tensor.h>
#include <absl/functional/function_ref.h>

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "functional/internal/member_list.h"
#include "tensordict/tensordict.h"

namespace graft {

using at::Tensor;

/// One Tensor or TensorDict inside a tree, and its place: "" for the value itself, "[0][1]" for an element of an
/// element.
struct TreePart {
  std::variant<Tensor*, TensorDict*> value;
  std::string path;
};

/// Says how a type is a tree; one specialisation a kind. `kIsTree`: every element is a tree. `kHasParts`: some element
/// can hold a tensor; then `collect(value, path, parts)` appends its parts.
template <class T>
struct TreeTraits {
  static constexpr bool kIsTree = false;
  static constexpr bool kHasParts = false;
};

/// Types that consist of tensors alone: what a mapped function may return.
template <class T>
concept Tree = TreeTraits<T>::kIsTree;

/// Types in which a transform may find tensors. Others it passes on by reference.
template <class T>
concept HasTreeParts = TreeTraits<T>::kHasParts;

/// Returns the parts of `value` in order, as pointers into it.
template <class T>
std::vector<TreePart> collect_parts(T& value) {
  std::vector<TreePart> parts;
  if constexpr (HasTreeParts<T>) TreeTraits<T>::collect(value, "", parts);
  return parts;
}

/// Replaces every tensor of `part` by `change(tensor)`; a TensorDict keeps its paths and its batch size.
/// \throws c10::ValueError if a new leaf of a TensorDict does not start with the batch size; the part is then as
///     before.
void replace_tensors(const TreePart& part, absl::FunctionRef<Tensor(const Tensor&)> change);

/// The place of one tensor in a tree.
struct TensorPlace {
  const TreePart& part;
  const std::string* leaf;  ///< Its path in the TensorDict of the part, nullptr if the part is the tensor.

  /// Returns the words for messages: `argument 1[0]` or `leaf "layers.0.weight" of argument 1`, for the owner "argument
  /// 1".
  std::string describe(const std::string& owner) const;
};

/// Calls `visit(tensor, place)` for every tensor of `part`.
void visit_tensors(const TreePart& part, absl::FunctionRef<void(const Tensor&, const TensorPlace&)> visit);

namespace internal {

/// Appends the parts of element number `index` of the value at `path`.
template <class T>
void collect_element(T& element, const std::string& path, std::size_t index, std::vector<TreePart>& parts) {
  if constexpr (HasTreeParts<T>) TreeTraits<T>::collect(element, path + "[" + std::to_string(index) + "]", parts);
}

/// What the traits of Tensor and TensorDict share.
template <class T>
struct PartTraits {
  static constexpr bool kIsTree = true;
  static constexpr bool kHasParts = true;
  static void collect(T& value, const std::string& path, std::vector<TreePart>& parts) {
    parts.push_back({&value, path});
  }
};

/// What the traits of std::tuple and std::pair share.
template <class Tuple, class... Elements>
struct TupleTraits {
  static constexpr bool kIsTree = (Tree<Elements> && ...);
  static constexpr bool kHasParts = (HasTreeParts<Elements> || ...);
  static void collect(Tuple& value, const std::string& path, std::vector<TreePart>& parts) {
    std::size_t index = 0;
    std::apply([&](auto&... elements) { (collect_element(elements, path, index++, parts), ...); }, value);
  }
};

/// What the traits of std::vector and std::array share.
template <class Sequence, class Element>
struct SequenceTraits {
  static constexpr bool kIsTree = Tree<Element>;
  static constexpr bool kHasParts = HasTreeParts<Element>;
  static void collect(Sequence& value, const std::string& path, std::vector<TreePart>& parts) {
    for (std::size_t i = 0; i < value.size(); ++i) collect_element(value[i], path, i, parts);
  }
};

/// The traits of a struct with named fields.
template <class Struct, class Names, auto... fields>
struct StructTraits {
  template <auto field>
  using Field = std::remove_cvref_t<decltype(std::declval<Struct&>().*field)>;
  static constexpr bool kIsTree = (Tree<Field<fields>> && ...);
  static constexpr bool kHasParts = (HasTreeParts<Field<fields>> || ...);
  static void collect(Struct& value, const std::string& path, std::vector<TreePart>& parts) {
    std::size_t position = 0;
    (collect_field(value.*fields, path + "." + std::string(nth_name(Names::kList, position++)), parts), ...);
  }

 private:
  template <class T>
  static void collect_field(T& field, const std::string& path, std::vector<TreePart>& parts) {
    if constexpr (HasTreeParts<T>) TreeTraits<T>::collect(field, path, parts);
  }
};

}  // namespace internal

template <>
struct TreeTraits<Tensor> : internal::PartTraits<Tensor> {};

template <>
struct TreeTraits<TensorDict> : internal::PartTraits<TensorDict> {};

template <class... Elements>
struct TreeTraits<std::tuple<Elements...>> : internal::TupleTraits<std::tuple<Elements...>, Elements...> {};

template <class First, class Second>
struct TreeTraits<std::pair<First, Second>> : internal::TupleTraits<std::pair<First, Second>, First, Second> {};

template <class Element>
struct TreeTraits<std::vector<Element>> : internal::SequenceTraits<std::vector<Element>, Element> {};

template <class Element, std::size_t size>
struct TreeTraits<std::array<Element, size>> : internal::SequenceTraits<std::array<Element, size>, Element> {};

/// An empty one has no parts.
template <class Element>
struct TreeTraits<std::optional<Element>> {
  static constexpr bool kIsTree = Tree<Element>;
  static constexpr bool kHasParts = HasTreeParts<Element>;
  static void collect(std::optional<Element>& value, const std::string& path, std::vector<TreePart>& parts) {
    if (value) TreeTraits<Element>::collect(*value, path, parts);
  }
};

/// In the order of the keys, which messages show.
template <class Key, class Element, class Less>
struct TreeTraits<std::map<Key, Element, Less>> {
  static constexpr bool kIsTree = Tree<Element>;
  static constexpr bool kHasParts = HasTreeParts<Element>;
  static void collect(std::map<Key, Element, Less>& value, const std::string& path, std::vector<TreePart>& parts) {
    for (auto& [key, element] : value) {
      std::ostringstream place;
      place << path << '[' << key << ']';
      TreeTraits<Element>::collect(element, place.str(), parts);
    }
  }
};

namespace internal {

/// How a transform holds an argument: a copy of what may hold tensors (the tensors in it are replaced), else a
/// reference.
template <class Arg>
using HeldArgument = std::conditional_t<HasTreeParts<std::remove_cvref_t<Arg>>, std::remove_cvref_t<Arg>, Arg&&>;

template <class... Args>
using HeldArguments = std::tuple<HeldArgument<Args>...>;

/// The parts of each argument.
using ArgumentParts = std::vector<std::vector<TreePart>>;

/// Returns the parts of each of the values, as pointers into them.
template <class Tuple>
ArgumentParts collect_each(Tuple& values) {
  return std::apply([](auto&... value) { return ArgumentParts{collect_parts(value)...}; }, values);
}

/// Calls `f` with the held arguments, of which the copies are const.
template <class F, class Tuple>
decltype(auto) call_with(const F& f, const Tuple& arguments) {
  return std::apply(f, arguments);
}

}  // namespace internal
}  // namespace graft

/// Makes a struct a tree whose parts are those of the named fields. See the head of this file.
#define GRAFT_TREE(Type, ...)                                                                                         \
  namespace graft::internal {                                                                                         \
  template <class>                                                                                                    \
  struct FieldNames;                                                                                                  \
  template <>                                                                                                         \
  struct FieldNames<Type> {                                                                                           \
    static constexpr std::string_view kList = #__VA_ARGS__;                                                           \
  };                                                                                                                  \
  }                                                                                                                   \
  template <>                                                                                                         \
  struct graft::TreeTraits<Type> : graft::internal::StructTraits<Type, graft::internal::FieldNames<Type>,             \
                                                                 GRAFT_INTERNAL_MEMBER_POINTERS(Type, __VA_ARGS__)> { \
  };
