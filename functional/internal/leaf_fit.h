// Whether a leaf may be installed in a slot, and what to say if not.
#pragma once

#include <ATen/core/Tensor.h>

#include <iosfwd>
#include <string_view>

#include "absl/base/attributes.h"
#include "absl/functional/function_ref.h"
#include "functional/internal/swap_plan.h"
#include "tensordict/internal/transformed.h"

namespace graft::internal {

struct InstallRules {
  std::string_view call;       ///< named in messages
  bool preserve_flags = true;  ///< see ToModuleOptions::preserve_module_state
  bool check_shapes = true;
  bool strict = false;         ///< every parameter and buffer gets a leaf, and no empty one does
  bool inplace = false;        ///< values are copied into the tensors that the module holds
  bool non_blocking = false;   ///< of these copies
  bool tie = false;            ///< names of one parameter that got no leaf follow the name that did
  bool redirect = false;       ///< parameters that no known member holds are collected, instead of refused
  bool alias = false;          ///< they share the data of plain leaves, instead of being refused
  bool reset_members = false;  ///< in the end known members hold what their entries hold, whatever forward assigned
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

/// Is there a handle that is not known?
inline bool has_unknown_handle(const Slot& slot) {
  return slot.reach == Reach::kUnknown || slot.hidden == HiddenHandles::kSome;
}

/// Is the leaf put in handles that are all known?
inline bool is_rebound(const Slot& slot, const InstallRules& rules) {
  return slot.reach <= Reach::kRegistry && slot.hidden != HiddenHandles::kSome && !rules.inplace;
}

/// Does the leaf change what the tensor in the slot contains, while all handles stay?
inline bool changes_content(const Slot& slot, const InstallRules& rules) {
  return !is_rebound(slot, rules) && (rules.inplace || rules.alias);
}

/// Can operators be given `leaf` in the place of `old_tensor`? (These properties are read without the dispatcher.)
bool can_stand_for(const at::Tensor& leaf, const at::Tensor& old_tensor);

/// What is asked beside the shape of a leaf that is not rebound.
bool fits_otherwise(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules);

bool can_require_grad(const at::Tensor& leaf);

/// `aliased` says what needs_alias said.
ABSL_ATTRIBUTE_ALWAYS_INLINE inline bool fits(const Slot& slot, const at::Tensor& leaf, bool aliased,
                                              const InstallRules& rules) {
  if (!is_rebound(slot, rules) && !fits_otherwise(slot, leaf, rules)) return false;
  return !(rules.check_shapes && has_wrong_shape(slot, leaf)) && !(aliased && !can_require_grad(leaf));
}

/// Checks that exactly the names that hold a tensor got a leaf.
/// \throws c10::ValueError listing the others; a shared module's under its first name.
void check_strict(const InstallRules& rules, std::string_view module, const KeyTable& names,
                  const std::vector<uint32_t>& slot_of_name, const std::vector<bool>& has_leaf,
                  absl::FunctionRef<bool(uint32_t slot)> holds_tensor);

/// Says what is wrong with a leaf for a slot that can be reached.
void describe_value_misfit(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules, std::ostream& text);

/// Writes one line on a leaf that does not fit.
void describe_misfit(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text);

}  // namespace graft::internal
