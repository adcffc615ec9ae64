// CountingAllocator: counts the tensor data that lives on the CPU, to find what a piece of code keeps.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <mutex>
#include <unordered_map>

namespace graft::testing {

/// Stands before LibTorch's own allocator. It sees only what is allocated after it was installed.
class CountingAllocator : public c10::Allocator {
 public:
  struct Live {
    int64_t blocks = 0;
    int64_t bytes = 0;
    bool operator==(const Live&) const = default;
  };

  /// Installs the allocator of this process, if it is not there yet, and returns it. No other thread may allocate
  /// during the first call.
  static CountingAllocator& install();

  /// Returns what was allocated and not yet freed, by all threads.
  Live live() const;

  c10::DataPtr allocate(std::size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* target, const void* source, std::size_t bytes) const override;

 private:
  explicit CountingAllocator(c10::Allocator& inner);
  static void free_block(void* block);

  c10::Allocator& inner_;
  mutable std::mutex mutex_;
  Live live_;
  std::unordered_map<void*, std::size_t> sizes_;  // of live blocks
};

std::ostream& operator<<(std::ostream& stream, const CountingAllocator::Live& live);

}  // namespace graft::testing
