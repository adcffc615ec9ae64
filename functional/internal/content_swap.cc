#include "functional/internal/content_swap.h"

#include <ATen/core/grad_mode.h>

#include "absl/container/flat_hash_set.h"

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

void ContentSwap::copy(const Changes& changes, bool non_blocking) {
  absl::flat_hash_set<const c10::StorageImpl*> written;
  for (const auto& [target, value] : changes) {
    save(target, /*with_values=*/true);
    if (target.has_storage()) written.insert(target.storage().unsafeGetStorageImpl());
  }
  std::vector<at::Tensor> values;
  for (const auto& [target, value] : changes) {
    const bool is_written = value.has_storage() && written.contains(value.storage().unsafeGetStorageImpl());
    values.push_back(is_written ? value.detach().clone() : value);
  }
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < changes.size(); ++i) changes[i].first.copy_(values[i], non_blocking);
}

void ContentSwap::alias(const Changes& changes) {
  for (const auto& [target, value] : changes) save(target, /*with_values=*/false);
  for (const auto& [target, value] : changes) {
    const at::Tensor* const as_it_was = old_content(value);
    set_content(target, as_it_was == nullptr ? value : *as_it_was);
  }
}

void ContentSwap::save(const at::Tensor& target, bool with_values) {
  if (old_content(target) != nullptr) return;
  Saved saved{.target = target, .place = target.variable_data(), .values = {}};
  if (with_values) saved.values = target.detach().clone();
  saved_.emplace(target.unsafeGetTensorImpl(), std::move(saved));
}

void ContentSwap::keep() { saved_.clear(); }

void ContentSwap::restore() noexcept {
  if (saved_.empty()) return;
  const at::NoGradGuard no_grad;
  for (const auto& [target, saved] : saved_) restore(saved);
  saved_.clear();
}

void ContentSwap::restore(const Saved& saved) {
  // Whoever casts a module, or loads into it, makes its tensors look at other storage.
  if (!is_in_place(saved.target, saved.place)) set_content(saved.target, saved.place);
  if (saved.values.defined()) saved.target.copy_(saved.values);
}

const at::Tensor* ContentSwap::old_content(const at::Tensor& target) const {
  const auto found = saved_.find(target.unsafeGetTensorImpl());
  if (found == saved_.end()) return nullptr;
  return found->second.values.defined() ? &found->second.values : &found->second.place;
}

}  // namespace graft::internal
