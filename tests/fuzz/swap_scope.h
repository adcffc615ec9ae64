// SwapScope: one swap with what it has to do, and how things were before.
#pragma once

#include <cstdint>
#include <map>
#include <set>

#include "tensordict/tensordict.h"
#include "tests/fuzz/changes.h"
#include "tests/fuzz/net_state.h"
#include "tests/fuzz/random_net.h"
#include "tests/fuzz/random_swap.h"
#include "tests/fuzz/swap_model.h"
#include "tests/testing/module_snapshot.h"

namespace graft::testing {

struct SwapScope {
  /// Takes everything down as it is now. \param changes what the swap will write to is noted there
  SwapScope(RandomSwap drawn, RandomNet& net, Changes& changes);
  SwapScope(const SwapScope&) = delete;
  SwapScope& operator=(const SwapScope&) = delete;

  /// Is a tensor replaced in some handles and changed in others, for good? Old values cannot say both.
  bool is_mixed() const;

  /// Does what happens depend on whether earlier calls have found the handles that nobody knows?
  bool is_history_needed(const RandomNet& net) const;

  RandomSwap swap;
  TensorDict swap_dest;
  ToModuleOptions options;  ///< with the place of `swap_dest`
  TensorDict arrived;       ///< what a load makes of the leaves, else the leaves
  Prediction expected;
  NetState before;
  Snapshot snapshot;
  std::map<const at::TensorImpl*, Tensor> values;  ///< of the leaves, before they are installed
  std::set<const at::TensorImpl*> contents;        ///< the tensors that get other values
  std::set<HandleId> written;
  int64_t layouts;  ///< that had been changed

 private:
  void load_leaves();
  void refuse_empty_names();
};

}  // namespace graft::testing
