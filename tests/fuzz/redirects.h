// Redirects: what operators compute with within functional_calls that exchange tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "tests/fuzz/swap_model.h"
#include "tests/fuzz/swap_scope.h"

namespace graft::testing {

class Redirects {
 public:
  void begin_call(std::vector<NewTensor> redirects) { calls_.push_back(std::move(redirects)); }
  void end_call() { calls_.pop_back(); }
  bool is_in_call() const { return !calls_.empty(); }

  /// Returns what operators compute with when they are given a tensor.
  Tensor resolved(const Tensor& tensor) const { return resolved(tensor, calls_.size()); }

  /// Returns what the forward that follows computes with, in a scope that is or will be the innermost.
  Tensor read_in(const SwapScope& scope, const Cell& cell) const;

 private:
  Tensor resolved(const Tensor& tensor, std::size_t calls) const;

  std::vector<std::vector<NewTensor>> calls_;  ///< that are running
};

}  // namespace graft::testing
