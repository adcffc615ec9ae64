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

/// IntArrayRef::equals without the call of memcmp.
inline bool same_sizes(at::IntArrayRef left, at::IntArrayRef right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i] != right[i]) return false;
  }
  return true;
}

inline bool has_wrong_shape(const Slot& slot, const at::Tensor& leaf) {
  return slot.entry->defined() && !same_sizes(slot.entry->sizes(), leaf.sizes());
}

/// May a redirect take the leaf to an entry that no known member holds?
bool fits_redirect(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules);

bool can_require_grad(const at::Tensor& leaf);

/// `aliased` says what needs_alias said.
inline bool fits(const Slot& slot, const at::Tensor& leaf, bool aliased, const InstallRules& rules) {
  if (slot.reach > Reach::kRegistry && !fits_redirect(slot, leaf, rules)) return false;
  return !(rules.check_shapes && has_wrong_shape(slot, leaf)) && !(aliased && !can_require_grad(leaf));
}

/// Writes one line on a leaf that does not fit.
void describe_misfit(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text);

}  // namespace graft::internal
