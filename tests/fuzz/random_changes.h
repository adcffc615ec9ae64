// RandomChanges: what a body does to a net within a scope, at a place that a seed decides.
#pragma once

#include <iosfwd>
#include <set>

#include "tests/fuzz/changes.h"
#include "tests/fuzz/net_state.h"
#include "tests/fuzz/random.h"
#include "tests/fuzz/random_net.h"

namespace graft::testing {

class RandomChanges {
 public:
  /// \param changes gets what is written to \param log gets a line for each
  RandomChanges(Random& random, RandomNet& net, Changes& changes, std::ostream& log)
      : random_(random), net_(net), changes_(changes), log_(log), has_ties_(net.has_ties()) {}

  /// Writes to a tensor that forward reads.
  void write();

  /// Makes a handle hold a new tensor, or one that another member holds.
  void assign();

  /// Registers something new in a module.
  void add();

  /// Unregisters one of these entries, which the scope will put back.
  void erase(const std::set<HandleId>& written);

  /// Casts the whole net.
  void cast();

  /// Are there, by `assign` or from the start, members that hold what another entry holds?
  bool has_ties() const { return has_ties_; }

 private:
  Random& random_;
  RandomNet& net_;
  Changes& changes_;
  std::ostream& log_;
  bool has_ties_;
  int extras_ = 0;
};

}  // namespace graft::testing
