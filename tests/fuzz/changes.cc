#include "tests/fuzz/changes.h"

#include <algorithm>

namespace graft::testing {

void Changes::note_write(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  ++writes_;
  written_.push_back(tensor);
  written_storages_.push_back(tensor.storage());
}

void Changes::note_new_values(const at::Tensor& tensor) {
  ++writes_;
  note_move(tensor);
}

bool Changes::is_written(const at::Tensor& tensor) const {
  if (!tensor.defined()) return false;
  const auto is_it = [&](const at::Tensor& other) { return other.is_same(tensor); };
  const auto is_its = [&](const c10::Storage& other) { return other.is_alias_of(tensor.storage()); };
  return std::any_of(written_.begin(), written_.end(), is_it) ||
         std::any_of(written_storages_.begin(), written_storages_.end(), is_its);
}

/// A version counter is shared by all tensors over one storage.
bool Changes::has_moved(const at::Tensor& tensor) const {
  return std::any_of(moved_.begin(), moved_.end(), [&](const at::Tensor& moved) {
    return moved.is_same(tensor) || (tensor.defined() && moved.is_alias_of(tensor));
  });
}

}  // namespace graft::testing
