// Which leaves a swap installs in a net, where and with which options: a seed decides.
#pragma once

#include "functional/to_module.h"
#include "tensordict/tensordict.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/random_net.h"
#include "tests/fuzz/swap_model.h"

namespace graft::testing {

/// One swap: what it is asked for, and the entries of its module as they are now.
struct RandomSwap {
  int depth;
  Mechanism mechanism;
  torch::nn::Module* target;
  Net* called;  ///< by a call, whose target it is
  ToModuleOptions options;
  bool has_swap_dest;
  TensorDict tree;
  ModuleView view;
};

/// The depth of the innermost scopes.
constexpr int kDeepest = 2;

/// Where a swap is drawn, which says what it may do.
struct SwapPlace {
  int depth;        ///< in how many scopes
  bool is_in_call;  ///< Does a functional_call run?
  /// Are there members that hold what another entry holds? Where such a module is given one leaf for both, nobody can
  /// tell afterwards whose the members were.
  bool has_ties;
};

RandomSwap draw_swap(Random& random, RandomNet& net, const SwapPlace& place);

}  // namespace graft::testing
