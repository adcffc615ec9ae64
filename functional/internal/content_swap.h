// ContentSwap: what tensors contain, exchanged while every handle to them stays.
//
// NOTE: [Two ways to change contents]
// To copy keeps the storage too, so that whoever looks at it sees the new values. To alias makes a tensor look at the
// storage of another (`set_data`): that reaches handles that nobody knows. Both move the version counter, so that
// autograd refuses a backward through what was computed before. Neither lets a gradient reach the new values.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace graft::internal {

class ContentSwap {
 public:
  ContentSwap() = default;
  /// Puts everything back, unless it was told to keep.
  ~ContentSwap() { restore(); }
  ContentSwap(const ContentSwap&) = delete;
  ContentSwap& operator=(const ContentSwap&) = delete;

  /// Tensors, each with what it is to contain.
  using Changes = std::vector<std::pair<at::Tensor, at::Tensor>>;

  // The values may be among the tensors, or lie in their storage: each is taken as it was before the first change.

  /// Copies values.
  void copy(const Changes& changes, bool non_blocking);

  /// Makes tensors share the storage of their values, flags and identities kept.
  void alias(const Changes& changes);

  void keep();
  void restore() noexcept;

  /// Returns what a tensor contained, or nullptr if it was not changed, or for good.
  const at::Tensor* old_content(const at::Tensor& target) const;

 private:
  /// What a tensor contained.
  struct Saved {
    at::Tensor target;
    at::Tensor place;   ///< another tensor over its storage
    at::Tensor values;  ///< a copy; undefined if nobody writes to the storage
  };

  void save(const at::Tensor& target, bool with_values);
  static void restore(const Saved& saved);

  absl::flat_hash_map<const at::TensorImpl*, Saved> saved_;
};

}  // namespace graft::internal
