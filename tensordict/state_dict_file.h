// Files of parameters that Python and C++ exchange: a dict from dotted names to tensors, as Python's state_dict() is.
//
//   save_state_dict(from_module(net), "net.pt");      // Python: net.load_state_dict(torch.load("net.pt"))
//   to_module(load_state_dict("net.pt"), net);        // Python: torch.save(net.state_dict(), "net.pt")
//
// torch.load takes such files with weights_only=True, its default, and torch::pickle_load returns a Dict. Batch sizes
// are not in them; archive.h keeps those.
#pragma once

#include <string>

#include "tensordict/tensordict.h"

namespace graft {

/// Writes a dict of all leaves. Dtypes, devices and requires_grad are kept; a leaf that has a gradient history becomes
/// one that has none. Leaves that share a storage still do when they are loaded; of another leaf that is a view, only
/// the part that it shows is written. Data is written without a copy of the whole.
///
/// The file appears whole or not at all: it is written aside in the same folder, then renamed over an old `file`.
/// \throws c10::ValueError listing every leaf that has no data of its own (sparse, meta, inside vmap or grad), or a
///     dtype that torch.save does not have.
/// \throws c10::Error naming the file if it cannot be written; an old `file` is then as before.
void save_state_dict(const TensorDict& tree, const std::string& file);

/// Reads a dict of tensors that save_state_dict or torch.save wrote, into a tree without batch dims. Names with dots
/// are paths. Tensors that share a storage in the file share it here, and are one tensor if they show the same;
/// parameters are tensors that require grad. Nothing that the file names is called or run.
/// \throws c10::Error naming the file if it cannot be read, is damaged, or is no dict in torch.save's zip format (the
///     default since torch 1.6), if a name is no path, or if values are no tensors, which are listed by key. Checksums
///     tell damage, unless the file was written without.
TensorDict load_state_dict(const std::string& file);

}  // namespace graft
