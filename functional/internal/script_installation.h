// ScriptInstallation: leaves put in the slots of a TorchScript module, and what was there before. What Installation is
// for torch::nn modules.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "functional/internal/content_swap.h"
#include "functional/internal/leaf_fit.h"
#include "functional/internal/leaf_requests.h"
#include "functional/internal/script_slots.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

class ScriptInstallation {
 public:
  using Trees = absl::Span<const TensorDict* const>;

  /// Installs every leaf of every tree, or throws and leaves everything as it was.
  ScriptInstallation(const ScriptObject& root, Trees trees, const InstallRules& rules);
  /// Puts everything back, unless it was told to keep.
  ~ScriptInstallation();
  ScriptInstallation(const ScriptInstallation&) = delete;
  ScriptInstallation& operator=(const ScriptInstallation&) = delete;

  /// Leaves the leaves where they are.
  void keep() {
    kept_ = true;
    contents_.keep();
  }

  /// The old values, and what the module holds now, under the names of the (single) tree.
  TensorDict old_values() const;
  TensorDict current_values() const;

 private:
  /// A slot that was written to, and its name, because its position changes if the body removes attributes.
  struct Written {
    ScriptSlot slot;
    std::string name;
    c10::IValue old_value;
  };

  LeafRequests requests_of(const ScriptSlots& slots, Trees trees, const InstallRules& rules) const;
  void check_one_leaf_each(const ScriptSlots& slots, const LeafRequests& requests, const InstallRules& rules) const;
  void check_fit(const ScriptSlots& slots, const LeafRequests& requests, const InstallRules& rules) const;
  void install(const ScriptSlots& slots, const LeafRequests& requests, const InstallRules& rules);
  void remember_others(const ScriptSlots& slots, const LeafRequests& requests);
  void copy_values(const ScriptSlots& slots, const LeafRequests& requests, const InstallRules& rules);
  TensorDict values_by_name(absl::FunctionRef<c10::IValue(const Written&)> value_of) const;

  ScriptObject root_;
  std::shared_ptr<const KeyTable> keys_;
  std::vector<Written> written_;  ///< those of `keys_` first
  ContentSwap contents_;
  bool kept_ = false;
};

}  // namespace graft::internal
