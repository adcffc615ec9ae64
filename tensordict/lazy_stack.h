// Trees that are seen as one stack and stay themselves: reads stack, writes reach the members.
//
//   LazyStack states({first, second});                      // batch size [2]; nothing is copied
//   at::Tensor obs = states.at("obs");                      // [2, ...], stacked now
//   states.set("reward", at::zeros({2}));                   // one handle for each member
//   states[1].set("extra", at::ones({3}));                  // members may differ in keys and shapes
//
// It is for members that must stay themselves: parameters that an optimiser of each module holds, episodes of several
// lengths. Where they need not, `stack` them once: reading a LazyStack costs a copy every time. To use it in a
// transform or a module, give it `states.stack()`; gradients reach the members. Python: LazyStackedTensorDict.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

class LazyStack {
 public:
  /// Keeps the members, whose leaves are shared.
  /// \param dim where the dim of the members is among the batch dims, from -batch_dims - 1 to batch_dims of a member.
  /// \throws c10::ValueError if there is no member, or one whose batch size is not that of the first.
  /// \throws c10::IndexError for a `dim` out of range.
  explicit LazyStack(std::vector<TensorDict> members, int64_t dim = 0);

  // --- Members

  std::size_t size() const { return members_.size(); }
  const std::vector<TensorDict>& members() const { return members_; }

  /// Returns a member, to be read or changed; its batch size must stay. \throws c10::IndexError if there is none.
  TensorDict& operator[](std::size_t position);
  const TensorDict& operator[](std::size_t position) const;

  /// Adds a member at the end, or before the one at `position`.
  /// \throws c10::ValueError if its batch size is another.
  /// \throws c10::IndexError for a `position` beyond the end.
  void append(TensorDict member);
  void insert(std::size_t position, TensorDict member);

  // --- Reading

  /// Returns the batch size of the stack: a member's, with the number of members at `dim()`.
  std::vector<int64_t> batch_size() const;
  int64_t dim() const { return dim_; }

  /// Returns the paths that every member has, in the order of the first.
  std::vector<std::string> paths() const;

  /// Returns the paths that only some members have, in the order in which they appear.
  std::vector<std::string> partial_paths() const;

  /// Returns the shape that the stacked leaf has, or would have: no number for a dim in which the members differ.
  /// \throws c10::IndexError listing the members that do not have the leaf.
  /// \throws c10::ValueError if the members' leaves differ in the number of dims.
  std::vector<std::optional<int64_t>> shape(std::string_view path) const;

  /// Returns the leaf of all members, stacked: a copy, through which gradients flow.
  /// \throws c10::IndexError listing the members that do not have the leaf.
  /// \throws c10::ValueError listing the members whose leaf has another shape, dtype or device than the first's.
  at::Tensor at(std::string_view path) const;

  /// Returns the members' leaves themselves. \throws c10::IndexError listing the members that do not have the leaf.
  std::vector<at::Tensor> each(std::string_view path) const;

  /// Returns the stack as one tree of the leaves that all members have; each a copy, through which gradients flow.
  /// \throws c10::ValueError listing every leaf whose shape, dtype or device differs among the members.
  TensorDict stack() const;

  // --- Writing. Each function takes a value for the whole stack; after an error no member is changed.

  /// Gives each member its part of `value` as the leaf at `path`, a view of `value`.
  /// \throws c10::ValueError if `value` does not start with the batch size, or as TensorDict::set.
  void set(std::string_view path, const at::Tensor& value);

  /// Copies the data of `value` into the members' leaves; it broadcasts to the shape of the stacked leaf.
  /// \throws c10::IndexError listing the members that do not have the leaf.
  /// \throws c10::ValueError as update_.
  void set_(std::string_view path, const at::Tensor& value) const;

  /// Removes the leaf or part at `path` from every member.
  /// \throws c10::IndexError listing the members that have nothing there.
  void erase(std::string_view path);

 private:
  void check_batch_size(const TensorDict& member) const;
  bool is_everywhere(std::string_view path) const;

  std::vector<TensorDict> members_;
  std::vector<int64_t> member_batch_size_;
  int64_t dim_;
};

}  // namespace graft
