#include "functional/internal/leaf_fit.h"

#include <ostream>

namespace graft::internal {
namespace {

bool is_refused(const Slot& slot, const InstallRules& rules) {
  if (slot.reach == Reach::kDetached) return true;
  return slot.reach == Reach::kUnknown && !(rules.redirect && slot.entry->defined());
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

}  // namespace

bool fits_redirect(const Slot& slot, const at::Tensor& leaf, const InstallRules& rules) {
  return !is_refused(slot, rules) && !has_wrong_shape(slot, leaf) && !has_wrong_type(slot, leaf);
}

bool can_require_grad(const at::Tensor& leaf) {
  return c10::isFloatingType(leaf.scalar_type()) || c10::isComplexType(leaf.scalar_type());
}

void describe_misfit(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text) {
  text << "\n  \"" << name << "\": ";
  if (is_refused(slot, rules)) {
    describe_refusal(plan, slot, text);
  } else if ((rules.check_shapes || slot.reach == Reach::kUnknown) && has_wrong_shape(slot, leaf)) {
    text << "shape " << leaf.sizes() << ", expected " << slot.entry->sizes();
  } else if (slot.reach == Reach::kUnknown && has_wrong_type(slot, leaf)) {
    text << leaf.scalar_type() << " on " << leaf.device() << ", expected " << slot.entry->scalar_type() << " on "
         << slot.entry->device() << ", because no member is known to hold it";
  } else {
    text << leaf.scalar_type() << ", expected a floating point or complex type, because the parameter requires grad";
  }
}

}  // namespace graft::internal
