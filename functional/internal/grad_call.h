// GradCall: one call of a function whose arguments are differentiated. The untyped core of grad and vjp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "functional/internal/transform_level.h"
#include "functional/tree.h"

namespace graft::internal {

/// \throws c10::TypeError listing each tensor of the arguments `differentiated` that has no derivative, if there is
/// any.
void check_differentiable(std::string_view call, const ArgumentParts& arguments,
                          const std::vector<std::size_t>& differentiated);

/// The level is open during its life.
class GradCall {
 public:
  /// Takes every tensor of `arguments` into the level, where the tensors of the arguments `differentiated` require
  /// grad.
  GradCall(const ArgumentParts& arguments, const std::vector<std::size_t>& differentiated);

  const GradLevel& level() const { return level_; }

  /// The tensors that require grad in the level, in order.
  const std::vector<Tensor>& inputs() const { return inputs_; }

  /// Takes the tensors of `parts` out of the level.
  void leave(const std::vector<TreePart>& parts) const;

 private:
  GradLevel level_;
  std::vector<Tensor> inputs_;
};

}  // namespace graft::internal
