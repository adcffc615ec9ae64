// The checksums that a zip archive has of its entries, which LibTorch's reader of archives does not look at.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"

namespace graft::internal {

/// Returns the CRC-32 of each entry by its name, without the folder that all of a torch.save file lie in. It is 0 where
/// none was computed, as torch.save may be told.
/// \throws c10::Error if the file cannot be read or is no zip archive.
absl::flat_hash_map<std::string, uint32_t> read_zip_checksums(const std::string& file);

}  // namespace graft::internal
