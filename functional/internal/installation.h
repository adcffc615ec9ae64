// Installation: leaves put in a module's handles, and what was there before. The work behind ToModuleGuard, to_module
// and functional_call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "functional/internal/swap_plan.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

struct InstallRules {
  std::string_view call;       ///< named in messages
  bool preserve_flags = true;  ///< see ToModuleOptions::preserve_module_state
  bool check_shapes = true;
  bool tie = false;       ///< names of one parameter that got no leaf follow the name that did
  bool redirect = false;  ///< parameters that no known member holds are collected, instead of refused
};

class Installation {
 public:
  /// Checks everything, then installs every leaf of every tree.
  Installation(torch::nn::Module& module, absl::Span<const TensorDict* const> trees, const InstallRules& rules);
  /// Puts everything back, unless it was told to keep.
  ~Installation();
  Installation(const Installation&) = delete;
  Installation& operator=(const Installation&) = delete;

  /// Leaves the module as it is now.
  void keep();

  /// Old tensor and leaf of each parameter that only a redirect can reach.
  std::vector<std::pair<at::Tensor, at::Tensor>> redirects() const;

  /// The old values, and what the module holds now, under the names of the (single) tree.
  TensorDict old_values() const;
  TensorDict current_values() const;

 private:
  struct Change {
    uint32_t slot;
    const std::string* name;  ///< as the tree calls it
    at::Tensor value;         ///< what goes in; once installed, what was there before
  };

  bool collect(absl::Span<const TensorDict* const> trees, const InstallRules& rules);
  void add_ties(const InstallRules& rules);
  void check_conflicts(const InstallRules& rules) const;
  [[noreturn]] void report(const InstallRules& rules) const;
  void prepare_flags();
  void install() noexcept;
  void restore() noexcept;
  void restore_changed_module();
  const Change& first_change_of(std::size_t position) const;
  TensorDict values_by_name(const std::vector<at::Tensor>& values) const;

  torch::nn::Module& module_;
  std::shared_ptr<SwapPlan> plan_;
  std::shared_ptr<const KeyTable> keys_;
  std::vector<Change> changes_;  ///< the first ones in the order of `keys_`
  bool kept_ = false;
};

}  // namespace graft::internal
