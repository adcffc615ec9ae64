#include "tests/fuzz/redirects.h"

namespace graft::testing {

/// Within the first `calls` calls: what the outer ones exchange it for, the inner ones may exchange again, and a leaf
/// stands for what it stands for outside.
Tensor Redirects::resolved(const Tensor& tensor, std::size_t calls) const {
  if (calls == 0 || !tensor.defined()) return tensor;
  for (const Tensor& seen : {tensor, resolved(tensor, calls - 1)}) {
    for (const auto& [old, leaf] : calls_[calls - 1]) {
      if (old.is_same(seen)) return resolved(leaf, calls - 1);
    }
  }
  return resolved(tensor, calls - 1);
}

Tensor Redirects::read_in(const SwapScope& scope, const Cell& cell) const {
  for (const auto& [handle, leaf, how] : scope.expected.handles) {
    if (handle != cell.handle()) continue;
    return scope.swap.mechanism == Mechanism::kCall ? resolved(leaf) : resolved(*handle);
  }
  for (const auto& [old, leaf] : scope.expected.redirects) {
    if (old.is_same(*cell.handle())) return resolved(leaf);
  }
  const Tensor tensor = resolved(*cell.handle());
  for (const auto& [old, leaf] : scope.expected.redirects) {
    if (old.is_same(tensor)) return resolved(leaf);
  }
  return tensor;
}

}  // namespace graft::testing
