#include "tensordict/internal/zip_checksums.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "tensordict/internal/descriptor.h"

namespace graft::internal {
namespace {

// The records at the end of a zip archive: their signatures, sizes, and where in them is what.
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64Locator = 0x07064b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kEntry = 0x02014b50;
constexpr std::size_t kEndSize = 22;
constexpr std::size_t kLocatorSize = 20;
constexpr std::size_t kEnd64Size = 56;
constexpr std::size_t kEntrySize = 46;
constexpr std::size_t kMaxComment = 65535;

/// Returns the number of `size` bytes at `position`, which must be there.
uint64_t number_at(std::string_view bytes, std::size_t position, std::size_t size) {
  uint64_t number = 0;
  for (std::size_t i = size; i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[position + i]);
  return number;
}

/// A file of which parts are read.
class Parts {
 public:
  explicit Parts(const std::string& file) : descriptor_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status;
    TORCH_CHECK(descriptor_.is_open() && ::fstat(descriptor_.number(), &status) == 0, std::strerror(errno));
    size_ = static_cast<std::size_t>(status.st_size);
  }

  std::size_t size() const { return size_; }

  std::string read(uint64_t offset, uint64_t size) const {
    TORCH_CHECK(offset <= size_ && size <= size_ - offset, "not a whole zip archive");
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      const off_t from = static_cast<off_t>(offset + done);
      const ssize_t count = ::pread(descriptor_.number(), bytes.data() + done, size - done, from);
      if (count < 0 && errno == EINTR) continue;
      TORCH_CHECK(count > 0, "cannot be read: ", count < 0 ? std::strerror(errno) : "it has become shorter");
      done += static_cast<std::size_t>(count);
    }
    return bytes;
  }

 private:
  Descriptor descriptor_;
  std::size_t size_ = 0;
};

/// Returns the list of entries that stands at the end of the archive.
std::string read_directory(const Parts& file) {
  const std::size_t tail_size = std::min(file.size(), kEndSize + kMaxComment);
  const std::string tail = file.read(file.size() - tail_size, tail_size);
  std::size_t end = tail.size();
  for (std::size_t i = tail.size() - std::min(tail.size(), kEndSize) + 1; i-- > 0 && end == tail.size();) {
    if (i + kEndSize <= tail.size() && number_at(tail, i, 4) == kEnd) end = i;
  }
  TORCH_CHECK(end < tail.size(), "not a whole zip archive");
  if (end >= kLocatorSize && number_at(tail, end - kLocatorSize, 4) == kEnd64Locator) {
    const std::string end64 = file.read(number_at(tail, end - kLocatorSize + 8, 8), kEnd64Size);
    TORCH_CHECK(number_at(end64, 0, 4) == kEnd64, "not a whole zip archive");
    return file.read(number_at(end64, 48, 8), number_at(end64, 40, 8));
  }
  return file.read(number_at(tail, end + 16, 4), number_at(tail, end + 12, 4));
}

}  // namespace

absl::flat_hash_map<std::string, uint32_t> read_zip_checksums(const std::string& file) {
  const std::string directory = read_directory(Parts(file));
  absl::flat_hash_map<std::string, uint32_t> checksums;
  for (std::size_t position = 0; position < directory.size();) {
    const bool has_entry = directory.size() - position >= kEntrySize && number_at(directory, position, 4) == kEntry;
    TORCH_CHECK(has_entry, "not a whole zip archive");
    const std::size_t name_size = number_at(directory, position + 28, 2);
    const std::size_t more = number_at(directory, position + 30, 2) + number_at(directory, position + 32, 2);
    TORCH_CHECK(directory.size() - position >= kEntrySize + name_size + more, "not a whole zip archive");
    const std::string name = directory.substr(position + kEntrySize, name_size);
    checksums[name.substr(name.find('/') + 1)] = static_cast<uint32_t>(number_at(directory, position + 16, 4));
    position += kEntrySize + name_size + more;
  }
  return checksums;
}

}  // namespace graft::internal
