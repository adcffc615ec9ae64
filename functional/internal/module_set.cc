#include "functional/internal/module_set.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "functional/internal/module_registry.h"

namespace graft::internal {
namespace {

using torch::nn::Module;

uint64_t next_number() {
  static std::atomic<uint64_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::vector<ModuleSet::Entry> entries_of(Module& root) {
  std::vector<ModuleSet::Entry> entries;
  std::vector<Module*> pending{&root};
  absl::flat_hash_set<const Module*> seen;
  while (!pending.empty()) {
    Module* const module = pending.back();
    pending.pop_back();
    if (!seen.insert(module).second) continue;
    entries.push_back({module, &typeid(*module)});
    for (const auto& item : child_registry(*module)) {
      if (item.value() != nullptr) pending.push_back(item.value().get());
    }
  }
  return entries;
}

}  // namespace

ModuleSet::ModuleSet(std::vector<Entry> entries) : number_(next_number()), entries_(std::move(entries)) {
  by_address_.reserve(entries_.size());
  for (const Entry& entry : entries_) by_address_.push_back(entry.module);
  std::sort(by_address_.begin(), by_address_.end(), std::less<>());
}

ModuleSet::ModuleSet(Module& root) : ModuleSet(entries_of(root)) {}

ModuleSet::~ModuleSet() { const std::lock_guard none_reads(in_use()); }

const ModuleSet::Entry* ModuleSet::common_with(const ModuleSet& other) const {
  const auto is_in_other = [&](const Entry& entry) {
    return std::binary_search(other.by_address_.begin(), other.by_address_.end(), entry.module, std::less<>());
  };
  const auto found = std::find_if(entries_.begin(), entries_.end(), is_in_other);
  return found == entries_.end() ? nullptr : &*found;
}

std::mutex& ModuleSet::in_use() {
  static constinit std::mutex mutex;
  return mutex;
}

}  // namespace graft::internal
