// SwapChecker: fails the test where a swap has not done what it has to do.
#pragma once

#include <map>

#include "tensordict/tensordict.h"
#include "tests/fuzz/changes.h"
#include "tests/fuzz/net_state.h"
#include "tests/fuzz/random_net.h"
#include "tests/fuzz/swap_scope.h"

namespace graft::testing {

class SwapChecker {
 public:
  /// \param changes those of bodies and forwards until a check
  SwapChecker(RandomNet& net, const Changes& changes) : net_(net), changes_(changes) {}

  /// Every handle holds what it shall hold within the scope, and the others what they held.
  void check_installed(const SwapScope& scope) const;

  /// The old values are what was there, or copies of its values.
  void check_old(const SwapScope& scope, const TensorDict& old) const;

  /// The current values are what is there.
  void check_current(const SwapScope& scope, const TensorDict& current) const;

  /// What Graft wrote is as before; the rest is as the body left it, but for what a call resets.
  /// \param inside once installed \param end when the body had ended
  void check_after(const SwapScope& scope, const NetState& inside, const NetState& end) const;

 private:
  std::map<HandleId, HandleId> resets_of(const SwapScope& scope) const;

  RandomNet& net_;
  const Changes& changes_;
};

}  // namespace graft::testing
