// A tree in one file, which Python reads as well:
//
//   save(td, "state.pt");
//   TensorDict back = load("state.pt");
//
//   name, version, batch_size, leaves, parts = torch.load("state.pt")   # Python; dict(leaves) maps paths to tensors
//
// The file is a zip archive as torch.save writes it. It is made of tuples, numbers, strings and tensors alone, so that
// torch.load takes it with weights_only=True, its default. `parts` is the batch dims that parts of the tree have beyond
// the tree's, by path. See also state_dict_file.h, for files that hold a dict of tensors, and memmap.h, for folders.
#pragma once

#include <string>

#include "tensordict/tensordict.h"

namespace graft {

/// Writes keys, batch sizes and leaves to `file`. Dtypes, devices and requires_grad are kept; a leaf that has a
/// gradient history becomes one that has none. Leaves that share a storage still do when they are loaded, and are one
/// tensor if they show the same; of another leaf that is a view, only the part that it shows is written. Data is
/// written without a copy of the whole.
///
/// The file appears whole or not at all: it is written aside in the same folder, then renamed over an old `file`.
/// \throws c10::ValueError listing every leaf that has no data of its own (sparse, meta, inside vmap or grad), or a
///     dtype that torch.save does not have.
/// \throws c10::Error naming the file if it cannot be written; an old `file` is then as before.
void save(const TensorDict& tree, const std::string& file);

/// Reads what `save` wrote, with this release of Graft or an earlier one. The tree is not locked.
/// \throws c10::Error naming the file if it cannot be read, is no file of `save`, or is damaged, as checksums tell.
TensorDict load(const std::string& file);

}  // namespace graft
