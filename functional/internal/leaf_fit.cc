#include "functional/internal/leaf_fit.h"

#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <sstream>

namespace graft::internal {
namespace {

bool is_refused(const Slot& slot, const InstallRules& rules) {
  if (slot.reach == Reach::kDetached) return true;
  if (!has_unknown_handle(slot) || rules.inplace) return false;
  const bool is_possible = rules.redirect || (rules.alias && slot.hidden != HiddenHandles::kSome);
  return !is_possible || !slot.entry->defined();
}

bool has_data_alone(const at::Tensor& leaf) { return !is_transformed(leaf) && !leaf._fw_grad(/*level=*/0).defined(); }

/// Would the parameter that shares the leaf's data differ from the leaf?
bool is_refused_alias(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  return slot.reach == Reach::kUnknown && rules.alias &&
         (carries_derivatives(leaf) || (!rules.preserve_flags && slot.entry->requires_grad()));
}

/// Sizes, dtype and device are read without the dispatcher, where a redirect cannot answer.
bool has_wrong_type(const Slot& slot, const at::Tensor& leaf) {
  return slot.entry->scalar_type() != leaf.scalar_type() || slot.entry->device() != leaf.device();
}

bool is_only_for_inference(const at::Tensor& leaf) { return leaf.is_inference() && !c10::InferenceMode::is_enabled(); }

void describe_refusal(const SwapPlan& plan, const Slot& slot, std::ostream& text) {
  const std::string type = c10::demangle(plan.modules()[slot.module].type->name());
  if (slot.reach == Reach::kDetached) {
    text << "its member " << plan.detached_member(slot) << " of " << type
         << " holds another tensor, which is registered nowhere (assign to the data of the parameter, or register the "
            "new tensor)";
  } else if (slot.hidden == HiddenHandles::kSome) {
    text << "a functional_call found that operators are also given it by a handle that is not known; write GRAFT_SLOTS "
            "with that member, or use functional_call, which needs no annotation";
  } else if (!slot.entry->defined()) {
    text << "no member of " << type
         << " is known for it, and it holds nothing that could be exchanged; write GRAFT_SLOTS(" << type
         << ", ...) with the member that forward reads";
  } else {
    text << "no member of " << type << " is known to hold it; write GRAFT_SLOTS(" << type
         << ", ...) with the member that forward reads, or use functional_call, which needs no annotation";
  }
}

void describe_refused_alias(const SwapPlan& plan, const Slot& slot, const at::Tensor& leaf, std::ostream& text) {
  const std::string type = c10::demangle(plan.modules()[slot.module].type->name());
  text << "no member of " << type << " is known to hold it, so it can only share the data of a leaf, but "
       << (carries_derivatives(leaf) ? "the leaf carries derivatives" : "it requires grad and the leaf does not")
       << "; write GRAFT_SLOTS(" << type << ", ...) with the member that forward reads";
}

void describe_misfit_in_place(const Slot& slot, const at::Tensor& leaf, std::ostream& text) {
  if (!slot.entry->defined()) {
    text << "the module holds nothing there to copy into";
  } else if (has_wrong_type(slot, leaf)) {
    text << leaf.scalar_type() << " on " << leaf.device() << ", expected " << slot.entry->scalar_type() << " on "
         << slot.entry->device() << ", because a copy in place does not convert";
  } else if (slot.entry->layout() != leaf.layout()) {
    text << leaf.layout() << ", expected " << slot.entry->layout();
  } else {
    text << "a copy in place would lose what vmap, grad or a forward-mode tangent made of "
         << (has_data_alone(leaf) ? "the tensor in the module" : "the leaf");
  }
}

}  // namespace

bool fits_otherwise(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  if (is_refused(slot, rules)) return false;
  if (rules.inplace) {
    return slot.entry->defined() && !has_wrong_type(slot, leaf) && has_data_alone(leaf) &&
           has_data_alone(*slot.entry) && slot.entry->layout() == leaf.layout();
  }
  return !is_refused_alias(slot, leaf, rules) && !has_wrong_shape(slot, leaf) && !has_wrong_type(slot, leaf);
}

bool can_stand_for(const at::Tensor& leaf, const at::Tensor& old_tensor) {
  return leaf.scalar_type() == old_tensor.scalar_type() && leaf.device() == old_tensor.device() &&
         same_sizes(leaf.sizes(), old_tensor.sizes());
}

bool can_require_grad(const at::Tensor& leaf) {
  return !is_only_for_inference(leaf) &&
         (c10::isFloatingType(leaf.scalar_type()) || c10::isComplexType(leaf.scalar_type()));
}

void check_strict(const InstallRules& rules, std::string_view module, const KeyTable& names,
                  const std::vector<uint32_t>& slot_of_name, const std::vector<bool>& has_leaf,
                  absl::FunctionRef<bool(uint32_t slot)> holds_tensor) {
  std::ostringstream problems;
  std::vector<bool> is_listed(has_leaf.size());
  for (std::size_t i = 0; i < slot_of_name.size(); ++i) {
    const uint32_t slot = slot_of_name[i];
    if (has_leaf[slot] == holds_tensor(slot) || is_listed[slot]) continue;
    problems << "\n  \"" << names.path(i)
             << "\": " << (has_leaf[slot] ? "got a leaf, but the module holds nothing there" : "got no leaf");
    is_listed[slot] = true;
  }
  TORCH_CHECK_VALUE(problems.str().empty(), rules.call, ": strict, but the leaves are not those of module ", module,
                    ":", problems.str(), "\nThe module is unchanged.");
}

void describe_value_misfit(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules, std::ostream& text) {
  if ((rules.check_shapes || has_unknown_handle(slot)) && has_wrong_shape(slot, leaf)) {
    text << "shape " << leaf.sizes() << ", expected " << slot.entry->sizes();
  } else if (rules.inplace) {
    describe_misfit_in_place(slot, leaf, text);
  } else if (has_unknown_handle(slot) && has_wrong_type(slot, leaf)) {
    text << leaf.scalar_type() << " on " << leaf.device() << ", expected " << slot.entry->scalar_type() << " on "
         << slot.entry->device() << ", because not every handle of it is known";
  } else if (is_only_for_inference(leaf)) {
    text << "an inference tensor, which cannot require grad as the parameter does; clone it outside inference mode";
  } else {
    text << leaf.scalar_type() << ", expected a floating point or complex type, because the parameter requires grad";
  }
}

void describe_misfit(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text) {
  text << "\n  \"" << name << "\": ";
  if (is_refused(slot, rules)) {
    describe_refusal(plan, slot, text);
  } else if (is_refused_alias(slot, leaf, rules)) {
    describe_refused_alias(plan, slot, leaf, text);
  } else {
    describe_value_misfit(slot, leaf, rules, text);
  }
}

}  // namespace graft::internal
