#include "tests/testing/counting_allocator.h"

#include <c10/core/CPUAllocator.h>

#include <limits>
#include <ostream>

namespace graft::testing {

CountingAllocator::CountingAllocator(c10::Allocator& inner) : inner_(inner) {
  TORCH_CHECK(inner_.raw_deleter() != nullptr, "the CPU allocator frees by more than an address");
}

CountingAllocator& CountingAllocator::install() {
  // Never destroyed: tensors may be freed after the last static object.
  static CountingAllocator* const allocator = [] {
    auto* const made = new CountingAllocator(*c10::GetCPUAllocator());
    c10::SetAllocator(c10::kCPU, made, /*priority=*/std::numeric_limits<uint8_t>::max());
    return made;
  }();
  return *allocator;
}

CountingAllocator::Live CountingAllocator::live() const {
  const std::lock_guard lock(mutex_);
  return live_;
}

c10::DataPtr CountingAllocator::allocate(std::size_t bytes) {
  void* const block = inner_.raw_allocate(bytes);
  if (block != nullptr) {
    const std::lock_guard lock(mutex_);
    sizes_.emplace(block, bytes);
    ++live_.blocks;
    live_.bytes += static_cast<int64_t>(bytes);
  }
  return {block, block, &free_block, c10::Device(c10::kCPU)};
}

void CountingAllocator::free_block(void* block) {
  if (block == nullptr) return;
  CountingAllocator& allocator = install();
  {
    const std::lock_guard lock(allocator.mutex_);
    const auto found = allocator.sizes_.find(block);
    --allocator.live_.blocks;
    allocator.live_.bytes -= static_cast<int64_t>(found->second);
    allocator.sizes_.erase(found);
  }
  allocator.inner_.raw_deallocate(block);
}

c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return &free_block; }

void CountingAllocator::copy_data(void* target, const void* source, std::size_t bytes) const {
  default_copy_data(target, source, bytes);
}

std::ostream& operator<<(std::ostream& stream, const CountingAllocator::Live& live) {
  return stream << live.blocks << " blocks of " << live.bytes << " bytes";
}

}  // namespace graft::testing
