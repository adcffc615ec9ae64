// Whether the leaves of a tree can be written to: asked for all of them before the first one is changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tensordict/key_table.h"

namespace graft::internal {

/// Collects what stands in the way of writing to leaves, for one error that lists all of it.
class WriteProblems {
 public:
  /// Appends a line that starts with `path`; the caller appends the rest.
  std::ostream& add(std::string_view path);

  /// Adds what forbids any write to `target`: autograd that guards it, or elements that are one in memory.
  /// \param takes_gradients whether what will be written has a gradient history.
  void check_target(std::string_view path, const at::Tensor& target, bool takes_gradients);

  /// Adds what forbids to copy `value` to the elements of `target` that have the shape `sizes`: no tensor, a shape that
  /// does not broadcast to it, an imaginary part that would be lost.
  void check_value(std::string_view path, const at::Tensor& value, at::IntArrayRef sizes, const at::Tensor& target);

  /// \throws c10::ValueError naming `call` if there is any line.
  void throw_if_any(std::string_view call) const;

 private:
  std::ostringstream lines_;
};

/// Checks that each value can be copied into its target: its shape broadcasts to the target's, no imaginary part is
/// lost, and the target may be written.
/// \throws c10::ValueError naming `call` and listing every leaf that cannot be written, under its path in `keys`.
void check_writable(std::string_view call, const KeyTable& keys, const std::vector<at::Tensor>& targets,
                    const std::vector<at::Tensor>& values);

/// Copies each value into its target; gradients flow, as LibTorch's fused copy would not have them.
void copy_values(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& values);

}  // namespace graft::internal
