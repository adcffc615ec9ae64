#include "functional/internal/leaf_fit.h"

#include <c10/util/Exception.h>

#include <sstream>

namespace graft::internal {
namespace {

bool is_refused(const Slot& slot, const InstallRules& rules) {
  if (slot.reach == Reach::kDetached) return true;
  return slot.reach == Reach::kUnknown && !rules.inplace && !((rules.redirect || rules.alias) && slot.entry->defined());
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

void describe_refusal(const SwapPlan& plan, const Slot& slot, std::ostream& text) {
  const std::string type = c10::demangle(plan.modules()[slot.module].type->name());
  if (slot.reach == Reach::kDetached) {
    text << "its member " << plan.detached_member(slot) << " of " << type
         << " holds another tensor, which is registered nowhere (assign to the data of the parameter, or register the "
            "new tensor)";
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
  } else {
    text << "a copy in place would lose what vmap, grad or a forward-mode tangent made of "
         << (has_data_alone(leaf) ? "the tensor in the module" : "the leaf");
  }
}

}  // namespace

bool fits_otherwise(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  if (is_refused(slot, rules)) return false;
  if (rules.inplace) {
    return slot.entry->defined() && !has_wrong_type(slot, leaf) && has_data_alone(leaf) && has_data_alone(*slot.entry);
  }
  return !is_refused_alias(slot, leaf, rules) && !has_wrong_shape(slot, leaf) && !has_wrong_type(slot, leaf);
}

bool can_require_grad(const at::Tensor& leaf) {
  return c10::isFloatingType(leaf.scalar_type()) || c10::isComplexType(leaf.scalar_type());
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
  if ((rules.check_shapes || slot.reach == Reach::kUnknown) && has_wrong_shape(slot, leaf)) {
    text << "shape " << leaf.sizes() << ", expected " << slot.entry->sizes();
  } else if (rules.inplace) {
    describe_misfit_in_place(slot, leaf, text);
  } else if (slot.reach == Reach::kUnknown && has_wrong_type(slot, leaf)) {
    text << leaf.scalar_type() << " on " << leaf.device() << ", expected " << slot.entry->scalar_type() << " on "
         << slot.entry->device() << ", because no member is known to hold it";
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
