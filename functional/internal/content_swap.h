// ContentSwap: what tensors contain, exchanged while every handle to them stays.
//
// NOTE: [Two ways to change contents]
// To copy keeps the storage too, so that whoever looks at it sees the new values. To alias makes a tensor look at the
// storage of another (`set_data`): that reaches handles that nobody knows. Both move the version counter, so that
// autograd refuses a backward through what was computed before. Neither lets a gradient reach the new values.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace graft::internal {

class ContentSwap {
 public:
  ContentSwap() = default;
  /// Puts everything back, unless it was told to keep.
  ~ContentSwap() { restore(); }
  ContentSwap(const ContentSwap&) = delete;
  ContentSwap& operator=(const ContentSwap&) = delete;

  /// Remembers the values of `target` and where they are; to be called before any value is copied: targets may share
  /// storage.
  void save_values(const at::Tensor& target);
  /// Returns a copy of a value that lies in the storage of a target, where copies to others may reach it first, and any
  /// other value as it is.
  at::Tensor kept_from_copies(const at::Tensor& value) const;
  void copy(const at::Tensor& target, const at::Tensor& value, bool non_blocking);

  /// Makes `target` share the storage of `value`, its own flag and identity kept.
  void alias(const at::Tensor& target, const at::Tensor& value);

  void keep();
  void restore() noexcept;

  /// Returns what a target contained, or nullptr for a tensor that was not touched.
  const at::Tensor* old_content(const at::Tensor& target) const;

 private:
  struct Saved {
    at::Tensor target;
    at::Tensor place;   ///< another tensor over its storage
    at::Tensor values;  ///< a copy, undefined if nobody writes to the storage
  };

  void restore(const Saved& saved);

  std::vector<Saved> saved_;
  absl::flat_hash_map<const at::TensorImpl*, at::Tensor> old_contents_;
  absl::flat_hash_set<const c10::StorageImpl*> written_storages_;
};

}  // namespace graft::internal
