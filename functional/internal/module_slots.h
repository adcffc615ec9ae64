// The slot table: for each module class, the data members that hold registered tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "functional/internal/member_list.h"

namespace torch::nn {
class Module;
}

namespace graft::internal {

/// Called with the name of a data member and with one tensor handle in it. Handles may be undefined.
using HandleVisitor = absl::FunctionRef<void(std::string_view, at::Tensor&)>;

/// What the table knows of one class.
struct ClassSlots {
  /// Casts to the class, or returns nullptr.
  void* (*cast)(torch::nn::Module&);
  /// Shows every handle of an object of the class (what `cast` returned), always in the same order.
  void (*visit)(void* object, HandleVisitor visitor);
  /// Handles can change their number or their address while the object lives (those in a vector or an optional).
  bool movable = false;
  /// The registry is all there is: forward reads nothing else (ParameterList, ParameterDict).
  bool registry_only = false;
};

/// Adds a class to the table; a second entry for one class adds handles to it. Safe from static initialisers.
void register_class_slots(ClassSlots slots);

/// What is known of a module: the entries of its class and of its bases.
class ModuleSlots {
 public:
  explicit ModuleSlots(std::vector<ClassSlots> classes);

  bool movable() const { return movable_; }
  bool registry_only() const { return registry_only_; }

  /// Shows every handle that `module` keeps in members, always in the same order while it keeps its sizes.
  void visit(torch::nn::Module& module, HandleVisitor visitor) const;

 private:
  std::vector<ClassSlots> classes_;
  bool movable_;
  bool registry_only_;
};

/// Returns the table's knowledge of the dynamic class of `module`; the reference stays valid.
const ModuleSlots& slots_of(torch::nn::Module& module);

// --- Registration by pointers to members, which GRAFT_SLOTS writes out.

inline void visit_member(std::string_view name, at::Tensor& handle, HandleVisitor visitor) { visitor(name, handle); }

template <typename T>
void visit_member(std::string_view name, std::vector<T>& handles, HandleVisitor visitor) {
  for (T& handle : handles) visit_member(name, handle, visitor);
}

template <typename T, std::size_t n>
void visit_member(std::string_view name, std::array<T, n>& handles, HandleVisitor visitor) {
  for (T& handle : handles) visit_member(name, handle, visitor);
}

template <typename T>
void visit_member(std::string_view name, std::optional<T>& handle, HandleVisitor visitor) {
  if (handle) visit_member(name, *handle, visitor);
}

/// Says whether handles of a member type stay where they are as long as the object lives.
template <typename T>
inline constexpr bool kStaysInPlace = std::is_same_v<T, at::Tensor>;
template <typename T, std::size_t n>
inline constexpr bool kStaysInPlace<std::array<T, n>> = kStaysInPlace<T>;

/// Registers `members` of `Type`; instantiating it is enough.
template <typename Type, typename Names, auto... members>
struct SlotRegistration {
  static void visit([[maybe_unused]] void* object, [[maybe_unused]] HandleVisitor visitor) {
    [[maybe_unused]] std::size_t position = 0;
    (visit_member(nth_name(Names::kList, position++), static_cast<Type*>(object)->*members, visitor), ...);
  }
  static const bool done;
};

template <typename Type, typename Names, auto... members>
const bool SlotRegistration<Type, Names, members...>::done = [] {
  constexpr bool stays = (kStaysInPlace<std::remove_reference_t<decltype(std::declval<Type&>().*members)>> && ...);
  register_class_slots({.cast = [](torch::nn::Module& module) -> void* { return dynamic_cast<Type*>(&module); },
                        .visit = &visit,
                        .movable = !stays,
                        .registry_only = sizeof...(members) == 0});
  return true;
}();

}  // namespace graft::internal
