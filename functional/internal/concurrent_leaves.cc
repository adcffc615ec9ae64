#include "functional/internal/concurrent_leaves.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "functional/internal/leaf_fit.h"

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

/// (Without Module::name, which writes to the module.)
void check_none(const std::string& problems, const SwapPlan& plan, std::string_view what) {
  TORCH_CHECK_VALUE(problems.empty(), kCall, ": ", what, " module ", c10::demangle(plan.modules().front().type->name()),
                    ":", problems, "\nThe module is unchanged.");
}

}  // namespace

std::vector<std::pair<at::Tensor, at::Tensor>> concurrent_leaves(SwapPlan& plan,
                                                                 absl::Span<const TensorDict* const> trees) {
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs;
  absl::flat_hash_map<const at::TensorImpl*, std::pair<std::size_t, std::string_view>> first_use;
  std::string misfits, conflicts;
  for (const TensorDict* tree : trees) {
    const auto slots = plan.slots_for(tree->keys(), kCall);
    for (std::size_t i = 0; i < tree->size(); ++i) {
      const Slot& slot = plan.slots()[slots->indices[i]];
      const at::Tensor& leaf = tree->values()[i];
      const std::string& name = tree->keys()->path(i);
      if (!fits_otherwise(slot, leaf, kRules)) {
        misfits += describe(plan, slot, name, leaf);
        continue;
      }
      const auto [use, is_new] =
          first_use.try_emplace(slot.entry->unsafeGetTensorImpl(), pairs.size(), std::string_view(name));
      if (is_new) {
        pairs.emplace_back(*slot.entry, leaf);
      } else if (!pairs[use->second.first].second.is_same(leaf)) {
        conflicts += "\n  \"" + std::string(use->second.second) + "\" and \"" + name +
                     "\" stand for one parameter, but were given two different tensors";
      }
    }
  }
  check_none(misfits, plan, "leaves that do not fit");
  check_none(conflicts, plan, "conflicting leaves for");
  return pairs;
}

}  // namespace graft::internal
