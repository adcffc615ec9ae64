#include "tensordict/internal/mapped_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

namespace graft::internal {

at::Tensor map_file(int descriptor, const std::vector<int64_t>& sizes, at::ScalarType dtype, Mapping mapping) {
  std::size_t bytes = at::elementSize(dtype);
  for (const int64_t size : sizes) bytes *= static_cast<std::size_t>(size);
  if (bytes == 0) return at::empty(sizes, dtype);
  const int flags = mapping == Mapping::kShared ? MAP_SHARED : MAP_PRIVATE;
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  TORCH_CHECK(data != MAP_FAILED, std::strerror(errno));
  return at::from_blob(
      data, sizes, [bytes](void* mapped) { ::munmap(mapped, bytes); }, at::dtype(dtype));
}

}  // namespace graft::internal
