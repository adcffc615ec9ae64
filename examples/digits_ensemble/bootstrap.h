// Bootstrap: which digits a member trains on, and in which order.
//
// A member draws as many digits as there are, with replacement, and goes through those in a new order each epoch. All
// of it follows from the two numbers `seed` and `member`, so that the batched training and the loop see the same
// batches.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace digits_ensemble {

class Bootstrap {
 public:
  /// Draws from digits 0 to `digits - 1`.
  /// \throws c10::ValueError if they do not make one batch.
  Bootstrap(int64_t digits, int64_t batch, uint64_t seed, int64_t member);

  /// Returns the next epoch's batches, [steps, b]. Digits that do not fill a batch are left out of that epoch.
  at::Tensor next_epoch();

 private:
  int64_t batch_;
  at::Generator generator_;
  at::Tensor drawn_;
};

}  // namespace digits_ensemble
