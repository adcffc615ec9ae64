// Installation: leaves put in a module's handles, and what was there before. The work behind ToModuleGuard, to_module
// and functional_call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "functional/internal/leaf_fit.h"
#include "functional/internal/swap_plan.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

class Installation {
 public:
  /// Checks everything, then installs every leaf of every tree.
  Installation(torch::nn::Module& module, absl::Span<const TensorDict* const> trees, const InstallRules& rules);
  /// Puts everything back, unless it was told to keep.
  ~Installation();
  Installation(const Installation&) = delete;
  Installation& operator=(const Installation&) = delete;

  /// Leaves the leaves where they are.
  void keep();

  /// Old tensor and leaf of each parameter that only a redirect can reach.
  std::vector<std::pair<at::Tensor, at::Tensor>> redirects() const;

  /// The old values, and what the module holds now, under the names of the (single) tree.
  TensorDict old_values() const;
  TensorDict current_values() const;

 private:
  struct Change {
    const at::Tensor* leaf;   ///< valid until it is installed, as the name is
    const std::string* name;  ///< as the tree calls it
    uint32_t slot;
    uint32_t old_entry;  ///< in `old_`; the members' old handles follow
    bool needs_alias;
  };

  void collect(absl::Span<const TensorDict* const> trees, const InstallRules& rules);
  bool add_change(uint32_t slot, const at::Tensor& leaf, const std::string& name, const InstallRules& rules);
  void add_ties(const InstallRules& rules);
  [[noreturn]] void report(const InstallRules& rules) const;
  void check_conflicts(const InstallRules& rules) const;
  std::vector<at::Tensor> make_aliases();
  void reserve_old();
  void install() noexcept;
  void restore() noexcept;
  void restore_changed_module();
  const Slot& slot_of(const Change& change) const { return plan_->slots()[change.slot]; }
  const Change& first_change_of(std::size_t position) const;
  TensorDict values_by_name(const std::vector<at::Tensor>& values) const;

  torch::nn::Module& module_;
  std::shared_ptr<SwapPlan> plan_;
  uint64_t newest_plan_;  ///< when this began
  std::shared_ptr<const KeyTable> keys_;
  std::vector<Change> changes_;  ///< the first ones in the order of `keys_`
  std::vector<at::Tensor> old_;  ///< what each handle held
  bool kept_ = false;
};

}  // namespace graft::internal
