// A tree in one file, which Python reads as well:
//
//   save(td, "state.pt");
//   TensorDict back = load("state.pt");
//
//   name, version, batch_size, leaves = torch.load("state.pt")   # Python; dict(leaves) maps paths to tensors
//
// The file is a zip archive as torch.save writes it. It is made of tuples, numbers, strings and tensors alone, so that
// torch.load takes it with weights_only=True, its default.
#pragma once

#include <string>

#include "tensordict/tensordict.h"

namespace graft {

/// Writes keys, batch size and leaves to `file`. Dtypes, devices and requires_grad are kept; a leaf that has a gradient
/// history becomes one that has none. Of a leaf that is a view, only the part that it shows is written.
///
/// The file appears whole or not at all: it is written aside in the same folder, then renamed over an old `file`.
/// \throws c10::ValueError listing every leaf that has no data of its own: sparse ones, and those inside vmap or grad.
/// \throws c10::Error naming the file if it cannot be written; an old `file` is then as before.
void save(const TensorDict& tree, const std::string& file);

/// Reads what `save` wrote.
/// \throws c10::Error naming the file if it cannot be read, is cut off, or is no file of `save`.
TensorDict load(const std::string& file);

}  // namespace graft
