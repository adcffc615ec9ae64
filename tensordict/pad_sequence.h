// pad_sequence: trees of different lengths, such as episodes, made one tree of the length of the longest.
//
//   TensorDict batch = pad_sequence(episodes, {.mask = "valid"});   // lengths 3, 5 -> batch size [2, 5]
//   at::Tensor loss = (error(batch) * batch["valid"]).sum();
#pragma once

#include <c10/core/Scalar.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

/// Which end of a shorter tree is padded.
enum class PaddingSide { kRight, kLeft };

struct PadSequenceOptions {
  /// The batch dim in which the trees differ.
  int64_t pad_dim = 0;
  /// What is put where a tree has no element.
  at::Scalar padding_value = 0;
  PaddingSide padding_side = PaddingSide::kRight;
  /// Where the result gets a leaf of bools in its batch size that says what is no padding; nowhere if empty.
  std::string mask = {};
};

/// Pads every tree to the longest one and stacks them: leaves `[..., length_i, rest...] -> [n, ..., longest, rest...]`.
/// Leaves are copies, the result is not locked. Python: tensordict.pad_sequence, which makes a mask for each leaf,
/// since it also pads dims beyond the batch dims.
/// \throws c10::ValueError if there is no tree, if the mask's path is taken, and listing every key, batch size, shape,
///     dtype and device that is not as in the first tree, but for the size of `pad_dim`.
/// \throws c10::IndexError if `pad_dim` is no batch dim.
TensorDict pad_sequence(const std::vector<TensorDict>& trees, const PadSequenceOptions& options = {});

}  // namespace graft
