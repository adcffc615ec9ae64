// Installation: leaves put in a module's handles, and what was there before. The work behind ToModuleGuard, to_module
// and functional_call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "functional/internal/content_swap.h"
#include "functional/internal/grad_alias.h"
#include "functional/internal/leaf_fit.h"
#include "functional/internal/leaf_requests.h"
#include "functional/internal/module_claim.h"
#include "functional/internal/swap_plan.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

/// Pairs of an old tensor and its leaf.
class Redirects {
 public:
  using Pairs = std::vector<std::pair<at::Tensor, at::Tensor>>;

  Redirects() = default;
  /// \param needed of parameters with handles that are not known
  /// \param doubtful of those that may have some, see note [Hidden handles] in swap_plan.h
  explicit Redirects(Pairs needed, const Pairs& doubtful = {}) : pairs_(std::move(needed)), needed_(pairs_.size()) {
    pairs_.insert(pairs_.end(), doubtful.begin(), doubtful.end());
  }

  const Pairs& pairs() const { return pairs_; }
  absl::Span<const Pairs::value_type> needed() const { return absl::MakeSpan(pairs_).first(needed_); }
  bool empty() const { return pairs_.empty(); }
  bool has_doubtful() const { return needed_ < pairs_.size(); }

 private:
  Pairs pairs_;
  std::size_t needed_ = 0;
};

class Installation {
 public:
  using Trees = absl::Span<const TensorDict* const>;

  /// Installs every leaf of every tree, or throws and leaves everything as it was.
  Installation(torch::nn::Module& module, Trees trees, const InstallRules& rules);
  /// Puts everything back, unless it was told to keep.
  ~Installation();
  Installation(const Installation&) = delete;
  Installation& operator=(const Installation&) = delete;

  /// Leaves the leaves where they are.
  void keep();

  /// Returns what operators are to be given other tensors for.
  Redirects take_redirects();
  /// Says which doubtful ones operators were given after all; the others are not doubtful any more.
  void note_met(absl::FunctionRef<bool(const at::TensorImpl* old_tensor)> was_met);

  /// The old values, and what the module holds now, under the names of the (single) tree.
  TensorDict old_values() const;
  TensorDict current_values() const;

 private:
  /// A tree and the slots that its keys stand for.
  struct Part {
    const TensorDict* tree;
    std::shared_ptr<const SlotList> slots;
  };
  using Parts = absl::InlinedVector<Part, 2>;

  void note_end() const;
  bool names_a_slot_twice(const Parts& parts) const;
  LeafRequests requests_of(const Parts& parts) const;
  void check_complete(const LeafRequests& requests, const InstallRules& rules) const;
  void check_one_leaf_each(const LeafRequests& requests, const InstallRules& rules) const;
  LeafRequests ties_of(const LeafRequests& requests) const;
  void check_fit(const LeafRequests& requests, const InstallRules& rules) const;
  void install_all(const Parts& parts, const LeafRequests& ties, const InstallRules& rules, bool has_ties);
  void list_slots(const Parts& parts, const LeafRequests& ties);
  bool install(absl::Span<const uint32_t> slots, absl::Span<const at::Tensor> leaves, const InstallRules& rules,
               AliasMap* aliases);
  void put(const Slot& slot, const at::Tensor& leaf) noexcept;
  void change_contents(const Parts& parts, const InstallRules& rules);
  void restore() noexcept;
  void restore_changed_module();
  void visit_old(absl::FunctionRef<void(const Slot&, const at::Tensor&)> visitor) const;
  at::Tensor current_value(const Slot& slot, bool plan_holds) const;
  TensorDict values_by_name(const std::vector<at::Tensor>& values) const;

  torch::nn::Module& module_;
  ModuleClaim claim_;
  SwapPlan* plan_;          ///< of the claim
  uint64_t newest_plan_;    ///< when this began
  uint64_t writes_before_;  ///< as above
  std::shared_ptr<const KeyTable> keys_;
  std::shared_ptr<const SlotList> slots_;  ///< to write, in order, those of `keys_` first
  std::vector<at::Tensor> old_;            ///< what each of their handles held that has been written
  ContentSwap contents_;
  std::vector<std::pair<const Slot*, const at::TensorImpl*>> doubtful_;  ///< redirects that were taken
  const bool resets_members_;
  bool kept_ = false;
};

}  // namespace graft::internal
