// How much of the heap is used, to find what a piece of code keeps.
#pragma once

#include <malloc.h>

#include <cstdint>

namespace graft::testing {

#if defined(__SANITIZE_ADDRESS__)
#define GRAFT_WITH_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GRAFT_WITH_ADDRESS_SANITIZER
#endif
#endif

/// AddressSanitizer has a heap of its own that mallinfo2 does not see.
#ifdef GRAFT_WITH_ADDRESS_SANITIZER
inline constexpr bool kSeesHeap = false;
#else
inline constexpr bool kSeesHeap = true;
#endif

/// Chunks that malloc has put aside for the next call count as used, so that the figure wavers: by up to 1,328 bytes
/// in four runs of ten thousand swaps.
inline constexpr int64_t kHeapSlack = 4'096;

/// Returns how many bytes of the heap are used; 0 if that cannot be seen.
inline int64_t heap_bytes() {
  const struct mallinfo2 heap = mallinfo2();
  return kSeesHeap ? static_cast<int64_t>(heap.uordblks + heap.hblkhd) : 0;
}

}  // namespace graft::testing
