// A tree in a folder, one file a leaf, as Python's tensordict keeps it. Leaves are mapped: data comes into memory when
// it is used, and what is written into a leaf is written into its file.
//
//   TensorDict mapped = memmap(td, "data");                           // Python: td.memmap("data")
//   TensorDict later = load_memmap("data");                           // Python: TensorDict.load_memmap("data")
//   TensorDict mine = load_memmap("data", {.read_only = true});       // Python: load_memmap("data", mode="r")
//   TensorDict zeros = memmap_like(td, "more");                       // Python: td.memmap_like("more")
//
// The format is that of tensordict 0.15.3, both ways: leaf "a.b" is the file data/a/b.memmap, which holds the elements
// in row-major order and nothing else, and each part of the tree is a folder with a meta.json that says the rest. What
// differs:
// - A name with dots in a folder of Python's is read as a path: a leaf "a.b" of one folder is leaf b of part a.
// - A part without leaves is not kept, nor are names of dims. Leaves come part by part, in the order of each folder.
// - Leaves are on the CPU, wherever they were saved from, as in Python. They require no grad, and have no ties: each of
//   several names for one tensor is a file of its own.
// - Lazy stacks, classes and values that are no tensors are errors, as are nested and quantized tensors.
// - Python loads what it finds, leaving out leaves without a file and taking the front of a longer one. Here a folder
//   loads whole, or is an error. (Python writes longer files when it saves a smaller leaf over a larger one in place.)
// There are no checksums: other bytes in a file of the right length are other numbers.
#pragma once

#include <string>

#include "tensordict/tensordict.h"

namespace graft {

struct MemmapOptions {
  /// Whether a folder that holds a tree is replaced; if not, it is an error.
  bool existsok = true;
};

/// Writes the tree to `folder`, and returns the tree of the mapped files, locked, with the batch sizes of `tree`.
/// Contiguous leaves on the CPU are written without a copy, others by one copy of one leaf at a time.
///
/// The folder is new or as before, whole, whatever happens: it is written aside, at a name that starts with "folder.",
/// and put in place by one renaming, which a power failure does not undo; if the process is killed meanwhile, what lies
/// aside stays. An old folder is replaced, nothing of it is kept. Leaves that are mapped from it stay usable, and may
/// be among those to be saved, but their files are gone.
/// A file system that cannot exchange two names has no `folder` for the moment between two renamings.
/// Python: `td.memmap(folder, copy_existing=True, atomic=True)`.
/// \throws c10::ValueError listing every leaf that cannot be written: one without data of its own (sparse, meta, inside
///     vmap or grad), of a dtype that the format does not have, or with a name in its path that meta.json has for
///     itself ("shape", "device", "_type") or that is not UTF-8.
/// \throws c10::Error naming `folder` if it cannot be written, or holds anything that is no tree; it is then
///     as before.
TensorDict memmap(const TensorDict& tree, const std::string& folder, const MemmapOptions& options = {});

/// The same with zeros in the place of the leaves' values, of which nothing is read. The file system sets the room
/// aside, if it can.
TensorDict memmap_like(const TensorDict& tree, const std::string& folder, const MemmapOptions& options = {});

struct LoadMemmapOptions {
  /// Whether leaves are copies on write: files are opened for reading only, and what is written into a leaf stays in
  /// memory, in this tree. Otherwise files must be writable, and all who map them share what is written.
  bool read_only = false;
};

/// Maps the leaves of the tree in `folder`, which memmap or Python wrote. The result is not locked. Files must not
/// become shorter while it lives.
///
/// All of it is checked before anything is returned, but the values: metadata, that each leaf starts with the batch
/// size around it, and that each file is there and has the bytes of its leaf. Symbolic links in the folder are not
/// followed, and no name leads out of it.
/// \throws c10::Error naming the file, and the key if it is about one.
TensorDict load_memmap(const std::string& folder, const LoadMemmapOptions& options = {});

}  // namespace graft
