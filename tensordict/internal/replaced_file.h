// Files and folders that appear whole or not at all: written aside in the same folder, then renamed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "tensordict/internal/folder_walk.h"

namespace graft::internal {

/// Writes all `size` bytes to an open file. `call` and `file` are for the message.
/// \throws c10::Error naming the file if the system does not take them.
void write_all(std::string_view call, int descriptor, const void* bytes, std::size_t size, const std::string& file);

/// Lets `write` fill a new file, then puts it in the place of `file`. Whatever happens meanwhile, `file` is as before
/// or new, also after a power failure; what was begun is removed again, unless the process is killed.
/// \throws c10::Error naming `file` if it cannot be written; what `write` throws passes through.
void replace_file(std::string_view call, const std::string& file, absl::FunctionRef<void(int descriptor)> write);

/// Lets `write` fill a new folder, where the walk stands at first and at last, then puts it in the place of `folder`,
/// and removes the old one. Folders above it are made as needed; if `folder` is a symbolic link, the folder that it
/// names is replaced.
/// Where the system can exchange two names in one step (Linux, on most file systems), `folder` is as before or new at
/// any moment; elsewhere there is none for the moment between two renames. What is in use of the old folder, as a
/// mapped file, stays usable.
/// \throws c10::Error naming `folder` if it cannot be written; what `write` throws passes through.
void replace_folder(std::string_view call, const std::string& folder, absl::FunctionRef<void(FolderWalk&)> write);

}  // namespace graft::internal
