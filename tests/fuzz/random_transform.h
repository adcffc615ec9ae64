// Random nests of transforms around random functions, which throw on purpose.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "tests/fuzz/random.h"

namespace graft::testing {

/// Throws at a place that was chosen before, counted over all places that a call comes by.
class Fuse {
 public:
  /// Throws at the place with this number, in one of a few ways; at none if it is negative.
  void set(int64_t place, int64_t way) {
    place_ = place;
    way_ = way;
    passed_ = 0;
  }
  /// How many places came by since `set`.
  int64_t passed() const { return passed_; }
  /// One place. \param x the value at hand, of some level.
  void burn(const at::Tensor& x, bool in_backward = false);

 private:
  int64_t place_ = -1;
  int64_t way_ = 0;
  int64_t passed_ = 0;
};

/// A function of a vector [3] of double to a number, with its expression as Python would write it.
struct RandomFunction {
  std::function<at::Tensor(const at::Tensor&)> f;
  std::string text;
};

/// Returns transforms, up to `depth` one in another, around a function. All have places before and after what they do,
/// and the innermost within. \param fuse outlives the function.
RandomFunction random_function(Random& random, Fuse& fuse, int depth);

}  // namespace graft::testing
