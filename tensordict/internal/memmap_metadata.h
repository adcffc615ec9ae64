// meta.json: what the folders of memmap.h say of the tensors in them, in the words of Python's tensordict.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace graft::internal {

/// The name of the file in each folder.
inline constexpr const char* kMetadataFile = "meta.json";

/// A leaf, or a part of the tree, which has a folder of its own.
struct MemmapEntry {
  std::string key;
  bool is_part = false;
  std::vector<int64_t> shape = {};
  at::ScalarType dtype = at::kFloat;
  std::string device = {};

  /// The size of the file.
  std::size_t nbytes() const;
};

struct MemmapMetadata {
  std::vector<int64_t> batch_size;
  std::vector<MemmapEntry> entries;
};

/// Returns the text of the file. Keys must be UTF-8.
std::string to_json(const MemmapMetadata& metadata);

/// Reads it back. Everything is checked: sizes are not negative and fit into memory's 63 bits, dtypes are known, no
/// key comes twice or is empty.
/// \throws c10::Error starting with `call` and naming `file` and the key.
MemmapMetadata from_json(std::string_view call, const std::string& text, const std::string& file);

bool is_utf8(const std::string& text);

/// Says whether meta.json has no place for an entry of this name.
bool is_reserved_key(std::string_view key);

/// Returns the dtype's name there, "torch.float32", or nothing if there is none.
std::string dtype_name(at::ScalarType dtype);

/// Returns the name of the file or folder for a key: characters that paths or shells take for something else become
/// "%2F" and the like.
std::string encoded_key(std::string_view key);

}  // namespace graft::internal
