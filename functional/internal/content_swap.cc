#include "functional/internal/content_swap.h"

#include <ATen/core/grad_mode.h>

#include <utility>

namespace graft::internal {
namespace {

bool is_in_place(const at::Tensor& tensor, const at::Tensor& place) {
  return tensor.is_alias_of(place) && tensor.sizes() == place.sizes() && tensor.strides() == place.strides() &&
         tensor.storage_offset() == place.storage_offset() && tensor.scalar_type() == place.scalar_type();
}

/// Exchanges the storage, which moves no version counter by itself.
void set_content(const at::Tensor& target, const at::Tensor& content) {
  target.set_data(content);
  target.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

void ContentSwap::save_values(const at::Tensor& target) {
  if (old_content(target) != nullptr) return;
  const at::Tensor values = target.detach().clone();
  old_contents_.emplace(target.unsafeGetTensorImpl(), values);
  saved_.push_back({target, target.variable_data(), values});
  if (target.has_storage()) written_storages_.insert(target.storage().unsafeGetStorageImpl());
}

at::Tensor ContentSwap::kept_from_copies(const at::Tensor& value) const {
  const bool is_written = value.has_storage() && written_storages_.contains(value.storage().unsafeGetStorageImpl());
  return is_written ? value.detach().clone() : value;
}

void ContentSwap::copy(const at::Tensor& target, const at::Tensor& value, bool non_blocking) {
  const at::NoGradGuard no_grad;
  target.copy_(value, non_blocking);
}

void ContentSwap::alias(const at::Tensor& target, const at::Tensor& value) {
  if (old_content(target) == nullptr) {
    const at::Tensor place = target.variable_data();
    old_contents_.emplace(target.unsafeGetTensorImpl(), place);
    saved_.push_back({target, place, /*values=*/{}});
  }
  set_content(target, value);
}

void ContentSwap::keep() { saved_.clear(); }

void ContentSwap::restore() noexcept {
  if (saved_.empty()) return;
  const at::NoGradGuard no_grad;
  for (const Saved& saved : saved_) restore(saved);
  saved_.clear();
}

void ContentSwap::restore(const Saved& saved) {
  // Whoever casts a module, or loads into it, makes its tensors look at other storage.
  if (!is_in_place(saved.target, saved.place)) set_content(saved.target, saved.place);
  if (saved.values.defined()) saved.target.copy_(saved.values);
}

const at::Tensor* ContentSwap::old_content(const at::Tensor& target) const {
  const auto found = old_contents_.find(target.unsafeGetTensorImpl());
  return found == old_contents_.end() ? nullptr : &found->second;
}

}  // namespace graft::internal
