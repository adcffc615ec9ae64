#include "functional/internal/leaf_fit.h"

#include <ostream>

namespace graft::internal {
namespace {

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

void describe_misfit(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf,
                     const InstallRules& rules, std::ostream& text) {
  text << "\n  \"" << name << "\": ";
  if (is_refused(slot, rules)) {
    describe_refusal(plan, slot, text);
  } else if (has_wrong_shape(slot, leaf, rules)) {
    text << "shape " << leaf.sizes() << ", expected " << slot.entry->sizes();
  } else if (has_wrong_type(slot, leaf)) {
    text << leaf.scalar_type() << " on " << leaf.device() << ", expected " << slot.entry->scalar_type() << " on "
         << slot.entry->device() << ", because no member is known to hold it";
  } else {
    text << leaf.scalar_type() << ", expected a floating point or complex type, because the parameter requires grad";
  }
}

}  // namespace graft::internal
