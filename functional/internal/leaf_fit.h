// Whether a leaf may be installed in a slot, and what to say if not.
#pragma once

#include <ATen/core/Tensor.h>

#include <iosfwd>
#include <string_view>

#include "functional/internal/swap_plan.h"
#include "tensordict/transformed.h"

namespace graft::internal {

struct InstallRules {
  std::string_view call;       ///< named in messages
  bool preserve_flags = true;  ///< see ToModuleOptions::preserve_module_state
  bool check_shapes = true;
  bool tie = false;       ///< names of one parameter that got no leaf follow the name that did
  bool redirect = false;  ///< parameters that no known member holds are collected, instead of refused
};

/// Would derivatives be lost if the tensor were replaced by an alias of its data?
inline bool carries_derivatives(const at::Tensor& tensor) {
  return tensor.requires_grad() || is_transformed(tensor) || tensor._fw_grad(/*level=*/0).defined();
}

/// A plain leaf that goes where a tensor with `requires_grad` was is replaced by an alias with that flag.
inline bool needs_alias(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  return rules.preserve_flags && !slot.is_buffer && !carries_derivatives(leaf) && slot.entry->defined() &&
         slot.entry->requires_grad();
}

inline bool is_refused(const Slot& slot, const InstallRules& rules) {
  if (slot.reach == Reach::kDetached) return true;
  return slot.reach == Reach::kUnknown && !(rules.redirect && slot.entry->defined());
}

/// IntArrayRef::equals without the call of memcmp.
inline bool same_sizes(at::IntArrayRef left, at::IntArrayRef right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i]) return false;
  }
  return true;
}

inline bool has_wrong_shape(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  const bool checked = rules.check_shapes || slot.reach == Reach::kUnknown;
  return checked && slot.entry->defined() && !same_sizes(slot.entry->sizes(), leaf.sizes());
}

/// Sizes, dtype and device are read without the dispatcher, where a redirect cannot answer.
inline bool has_wrong_type(const Slot& slot, const at::Tensor& leaf) {
  return slot.reach == Reach::kUnknown &&
         (slot.entry->scalar_type() != leaf.scalar_type() || slot.entry->device() != leaf.device());
}

inline bool can_require_grad(const at::Tensor& leaf) {
  return c10::isFloatingType(leaf.scalar_type()) || c10::isComplexType(leaf.scalar_type());
}

/// `aliased` says what needs_alias said.
inline bool fits(const Slot& slot, const at::Tensor& leaf, bool aliased, const InstallRules& rules) {
  return !is_refused(slot, rules) && !has_wrong_shape(slot, leaf, rules) && !has_wrong_type(slot, leaf) &&
         (!aliased || can_require_grad(leaf));
}

/// Writes one line on a leaf that does not fit.
void describe_misfit(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text);

}  // namespace graft::internal
