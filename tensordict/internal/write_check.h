// Whether the leaves of a tree can be written to: asked for all of them before the first one is changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tensordict/key_table.h"

namespace graft::internal {

/// What a value that will be written brings with it.
struct Source {
  bool has_gradients = false;   ///< It requires grad.
  bool is_transformed = false;  ///< It is a wrapper of vmap or of a derivative.
};

Source source_of(const at::Tensor& value);
inline Source operator|(Source a, Source b) {
  return {a.has_gradients || b.has_gradients, a.is_transformed || b.is_transformed};
}

/// Collects what stands in the way of writing to leaves, for one error that lists all of it.
class WriteProblems {
 public:
  /// Appends a line that starts with `path`; the caller appends the rest.
  std::ostream& add(std::string_view path);

  /// Adds what forbids to write such a value to `target`: autograd that guards it, elements that are one in memory, a
  /// transform that it does not take part in.
  void check_target(std::string_view path, const at::Tensor& target, Source source);

  /// Adds a line if a value of this shape does not broadcast to `sizes`.
  void check_shape(std::string_view path, at::IntArrayRef shape, at::IntArrayRef sizes);

  /// Adds a line if the number is beyond those of the dtype of `target`.
  void check_number(std::string_view path, const at::Scalar& number, const at::Tensor& target);

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

/// Copies each value into its target, as if all copies were made at once: a value may lie in the memory of a target.
/// Gradients flow, as LibTorch's fused copy would not have them.
void copy_values(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& values);

/// Does both. \throws as check_writable; nothing is changed then.
void write_values(std::string_view call, const KeyTable& keys, const std::vector<at::Tensor>& targets,
                  const std::vector<at::Tensor>& values);

}  // namespace graft::internal
