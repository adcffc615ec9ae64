#include "functional/explain_swap.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <iomanip>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "functional/internal/swap_plan.h"

namespace graft {
namespace {

using internal::Member;
using internal::Reach;
using internal::Slot;
using internal::SwapPlan;

std::string type_of(const SwapPlan& plan, uint32_t module) {
  return c10::demangle(plan.modules()[module].type->name());
}

/// Names the members, once where a vector has several elements.
std::string members_of(const SwapPlan& plan, const Slot& slot) {
  std::vector<std::string> names;
  for (const Member& member : plan.members(slot)) {
    const std::string name = absl::StrCat(type_of(plan, member.module), "::", std::string(member.label.first));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return absl::StrJoin(names, ", ");
}

SwapExplanation explain(const SwapPlan& plan, const Slot& slot, const std::string& name) {
  const std::string type = type_of(plan, slot.module);
  switch (slot.reach) {
    case Reach::kMembers:
      return {name, SwapMechanism::kRebind, absl::StrCat("its entry is set, and ", members_of(plan, slot))};
    case Reach::kRegistry:
      return {name, SwapMechanism::kRebind, absl::StrCat("its entry is set, which is all that ", type, " reads")};
    case Reach::kUnknown:
      if (!slot.entry->defined()) {
        return {name, SwapMechanism::kRefused,
                absl::StrCat("no member of ", type, " is known for it, and it holds nothing that could be exchanged; ",
                             "write GRAFT_SLOTS(", type, ", ...)")};
      }
      return {name, SwapMechanism::kRedirect,
              absl::StrCat("no member of ", type, " is known to hold it; functional_call exchanges it operator by ",
                           "operator, to_module shares the data of a plain leaf, a guard refuses; write GRAFT_SLOTS(",
                           type, ", ...)")};
    case Reach::kDetached:
      return {name, SwapMechanism::kRefused,
              absl::StrCat("its member ", std::string(plan.detached_member(slot)), " of ", type,
                           " holds another tensor, which is registered nowhere")};
  }
  return {};
}

const char* name_of(SwapMechanism mechanism) {
  switch (mechanism) {
    case SwapMechanism::kRebind:
      return "rebind";
    case SwapMechanism::kRedirect:
      return "redirect/alias";
    case SwapMechanism::kRefused:
      return "refused";
  }
  return "";
}

}  // namespace

std::vector<SwapExplanation> explain_swap(ModuleRef module) {
  const SwapPlan plan(module.get());
  std::vector<SwapExplanation> explanations;
  for (std::size_t i = 0; i < plan.names().size(); ++i) {
    explanations.push_back(explain(plan, plan.slots()[plan.slot_of_name()[i]], plan.names().path(i)));
  }
  return explanations;
}

std::ostream& operator<<(std::ostream& stream, const std::vector<SwapExplanation>& explanations) {
  std::size_t width = 0;
  for (const SwapExplanation& explanation : explanations) width = std::max(width, explanation.name.size());
  for (const auto& [name, mechanism, why] : explanations) {
    stream << std::left << std::setw(static_cast<int>(width)) << name << "  " << std::setw(8) << name_of(mechanism)
           << "  " << why << '\n';
  }
  return stream;
}

}  // namespace graft
