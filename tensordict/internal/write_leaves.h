// write_leaves: an operator that writes to every leaf of a tree, or to none.
//
// What an operator says about dtypes and numbers it says when it comes to the leaf, after it has written to others. So
// it is rehearsed first, on one element of each combination of dtypes that the tree has.
#pragma once

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/internal/transformed.h"
#include "tensordict/internal/write_check.h"
#include "tensordict/operand.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

// --- What a side contributes: a number is the same for all leaves.

inline Source source_of(const at::Scalar&) { return {}; }

inline bool can_rehearse(const at::Scalar&) { return true; }
inline bool can_rehearse(const at::Tensor& value) {
  return value.layout() == at::kStrided && !value.is_nested() && !value.is_quantized();
}

inline int64_t options_of(const at::Tensor& value) {
  const at::Device device = value.device();
  return static_cast<int64_t>(value.scalar_type()) << 24 | static_cast<int64_t>(device.type()) << 16 |
         static_cast<uint16_t>(device.index());
}

/// Tells apart what makes an operator behave differently: dtype, device, and for a single number which one it is.
inline int64_t kind_of(const at::Scalar&) { return 0; }
inline int64_t kind_of(const at::Tensor& value) {
  if (value.dim() == 0) return static_cast<int64_t>(reinterpret_cast<intptr_t>(value.unsafeGetTensorImpl()));
  return options_of(value);
}

/// Returns a tensor of one element, without dims if the value has none.
inline at::Tensor one_element_like(const at::Tensor& value) {
  return at::ones(at::IntArrayRef({1}).slice(0, value.dim() == 0 ? 0 : 1), value.options().requires_grad(false));
}

/// Returns what stands for the value: one element, or the very number.
inline const at::Scalar& stand_in(const at::Scalar& number) { return number; }
inline at::Tensor stand_in(const at::Tensor& value) {
  if (value.dim() == 0 && !is_transformed(value)) return value;
  return one_element_like(value);
}

inline void check_shape(std::string_view, const at::Scalar&, const at::Tensor&, WriteProblems&) {}
inline void check_shape(std::string_view path, const at::Tensor& value, const at::Tensor& target,
                        WriteProblems& problems) {
  problems.check_shape(path, value.sizes(), target.sizes());
}

inline std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

/// Returns what the operator says about one element of these, "" if it is nothing.
template <typename Single, typename... Values>
std::string rehearse(Single single, const at::Tensor& target, const Values&... values) {
  const at::NoGradGuard no_grad;
  try {
    single(one_element_like(target), stand_in(values)...);
    return "";
  } catch (const c10::Error& error) {
    return first_line(error.what_without_backtrace());
  } catch (const std::runtime_error& error) {  // of a number that a dtype does not have
    return first_line(error.what());
  }
}

/// Checks that `single` can write to every leaf. \throws c10::ValueError naming `call` and listing all that it cannot.
template <typename Single, typename... Sides>
void check_write(const char* call, const TensorDict& tree, Single single, const Sides&... sides) {
  WriteProblems problems;
  absl::flat_hash_map<std::array<int64_t, 2 + sizeof...(Sides)>, std::string> rehearsed;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::string& path = tree.keys()->path(i);
    const at::Tensor& target = tree.values()[i];
    problems.check_target(path, target, (Source{} | ... | source_of(leaf_of(sides, i))));
    (check_shape(path, leaf_of(sides, i), target, problems), ...);
    if (!can_rehearse(target) || !(true && ... && can_rehearse(leaf_of(sides, i)))) continue;
    const auto [said, is_new] =
        rehearsed.try_emplace({options_of(target), target.dim() == 0, kind_of(leaf_of(sides, i))...});
    if (is_new) said->second = rehearse(single, target, leaf_of(sides, i)...);
    if (!said->second.empty()) problems.add(path) << said->second;
  }
  problems.throw_if_any(call);
}

/// Writes to every leaf of `tree`, one after the other. \throws as check_write; nothing is changed then.
template <typename Single, typename... Sides>
void write_each_leaf(const char* call, const TensorDict& tree, Single single, const Sides&... sides) {
  check_write(call, tree, single, sides...);
  for (std::size_t i = 0; i < tree.size(); ++i) single(tree.values()[i], leaf_of(sides, i)...);
}

/// Writes to every leaf of `tree`, by one operation. \throws as check_write; nothing is changed then.
template <typename Fused, typename Single, typename... Sides>
void write_leaves(const char* call, const TensorDict& tree, Fused fused, Single single, const Sides&... sides) {
  if (any_transformed(tree.values()) || (false || ... || any_transformed(sides))) {
    write_each_leaf(call, tree, single, sides...);
  } else if (!tree.empty()) {
    check_write(call, tree, single, sides...);
    fused(tree.values(), sides...);
  }
}

/// Calls `write` with what stands beside the leaves: a number, or a list.
template <typename Write>
void with_side(const char* call, const TensorDict& tree, const Operand& operand, Write write) {
  if (operand.number()) {
    write(*operand.number());
  } else {
    write(align_in_place(call, tree, {&operand}).sides[1]);
  }
}

}  // namespace graft::internal
