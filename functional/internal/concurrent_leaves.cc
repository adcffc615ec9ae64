#include "functional/internal/concurrent_leaves.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_set.h"
#include "functional/internal/leaf_fit.h"
#include "functional/internal/leaf_requests.h"

namespace graft::internal {
namespace {

constexpr std::string_view kCall = "functional_call";
constexpr InstallRules kRules{.call = kCall, .preserve_flags = false, .tie = true, .redirect = true};

std::string describe(const SwapPlan& plan, const Slot& slot, std::string_view name, const at::Tensor& leaf) {
  std::ostringstream text;
  if (slot.reach == Reach::kDetached) {
    describe_misfit(plan, slot, name, leaf, kRules, text);
  } else if (!slot.entry->defined()) {
    text << "\n  \"" << name << "\": the module holds no tensor there, and a concurrent call does not put one there";
  } else {
    text << "\n  \"" << name << "\": " << leaf.scalar_type() << leaf.sizes() << " on " << leaf.device() << ", expected "
         << slot.entry->scalar_type() << slot.entry->sizes() << " on " << slot.entry->device();
  }
  return text.str();
}

}  // namespace

std::vector<std::pair<at::Tensor, at::Tensor>> concurrent_leaves(SwapPlan& plan,
                                                                 absl::Span<const TensorDict* const> trees) {
  LeafRequests requests;
  std::string misfits;
  for (const TensorDict* tree : trees) {
    const auto slots = plan.slots_for(tree->keys(), kCall);
    for (std::size_t i = 0; i < tree->size(); ++i) {
      const LeafRequest request{slots->indices[i], &tree->values()[i], &tree->keys()->path(i)};
      const Slot& slot = plan.slots()[request.slot];
      if (!fits_otherwise(slot, *request.leaf, kRules)) misfits += describe(plan, slot, *request.name, *request.leaf);
      requests.push_back(request);
    }
  }
  // Without Module::name, which writes to the module.
  const std::string module = c10::demangle(plan.modules().front().type->name());
  TORCH_CHECK_VALUE(misfits.empty(), kCall, ": leaves that do not fit module ", module, ":", misfits,
                    "\nThe module is unchanged.");
  const auto held = [&](uint32_t slot) { return plan.slots()[slot].entry->unsafeGetTensorImpl(); };
  check_conflicts(kCall, module, requests, held);

  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  absl::flat_hash_set<const at::TensorImpl*> seen;
  for (const LeafRequest& request : requests) {
    if (seen.insert(held(request.slot)).second) pairs.emplace_back(*plan.slots()[request.slot].entry, *request.leaf);
  }
  return pairs;
}

}  // namespace graft::internal
