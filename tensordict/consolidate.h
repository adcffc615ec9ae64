// A tree whose leaves lie in one buffer, so that a copy, a move to another device or a checkpoint is one operation.
//
//   Consolidated state(params);                             // one allocation, one pass over the leaves
//   Consolidated on_device = state.to(at::kCUDA);           // one copy, whatever the number of leaves
//   save(TensorDict({{"bytes", state.buffer()}}), "state.pt");
//
// Leaves of all dtypes go in; each starts at a multiple of 64 bytes. Python: TensorDict.consolidate.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

class Consolidated {
 public:
  /// Copies the leaves of `tree` into a new buffer on their device. Names of one tensor stay names of one; each leaf
  /// requires grad as before, and has no gradient history.
  /// \throws c10::ValueError listing every leaf that is on another device than the first one, or has no memory of its
  ///     own: sparse ones, and those inside vmap or grad.
  explicit Consolidated(const TensorDict& tree);

  /// Returns the tree: keys and batch sizes as before, leaves that are contiguous views of the buffer. It is locked,
  /// for another handle in it would not be in the buffer.
  const TensorDict& tree() const { return tree_; }

  /// Returns the buffer, bytes [n]. What is written to it, all leaves show.
  const at::Tensor& buffer() const { return buffer_; }

  /// Returns a copy with a buffer of its own.
  Consolidated clone() const;

  /// Returns a copy on `device`, or one that shares the buffer if it is there already.
  Consolidated to(at::Device device, bool non_blocking = false) const;

  /// Returns a copy in memory from which devices read directly. \throws c10::Error if there is no such device.
  Consolidated pin_memory() const;

  /// Returns the same tree over another buffer, shared: bytes that came over a network or from a file.
  /// \throws c10::ValueError if it is not a contiguous tensor of as many bytes.
  Consolidated with_buffer(const at::Tensor& buffer) const;

 private:
  Consolidated(const Consolidated& layout, at::Tensor buffer);
  void show_leaves(const TensorDict& like);

  std::vector<int64_t> offsets_;  // in bytes, by position; the same for names of one tensor
  at::Tensor buffer_;
  TensorDict tree_;
};

}  // namespace graft
