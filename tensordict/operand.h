// Operand: what may stand beside a tree in an operation, which is another tree, one tensor, or a number.
//
//   td * other;                       // leaf by leaf, aligned by path
//   td * torch::ones({4, 1});         // a factor for each place of the batch dims
//   td * 0.5;
//
// How an operand meets the leaves:
// - Batch dims broadcast from the right, as the dims of tensors do: those of a tree are its batch size, those of a
//   tensor all its dims. The result has the batch size that comes out, so a tensor of shape [5, 1] makes one of [5, 3]
//   out of [3].
// - Beyond the batch dims each pair of leaves broadcasts on its own, again from the right; a tensor has nothing there.
//   A leaf [n] of batch size [n] is hence one number a sample beside a leaf [n, 3].
// - A tensor without dims is a number that is not known yet: it does not change the dtypes of leaves of its kind.
//
// Python: the right side of TensorDict's operators. It pairs leaves of batch size [n] that differ in rank from the
// right, which mixes samples; that is the one difference.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Scalar.h>

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <variant>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

/// Refers to a tree or a tensor, or holds a number. It is for parameters: what it refers to has to outlive it.
class Operand {
 public:
  Operand(const TensorDict& tree) : value_(&tree) {}      // NOLINT: any operand is one without being told so
  Operand(const at::Tensor& tensor) : value_(&tensor) {}  // NOLINT
  template <typename Number>
  requires std::convertible_to<Number, at::Scalar> Operand(const Number& number)
      : value_(at::Scalar(number)) {}  // NOLINT

  /// Return what it is, and nullptr for the other two.
  const TensorDict* tree() const { return get<const TensorDict*>(); }
  const at::Tensor* tensor() const { return get<const at::Tensor*>(); }
  const at::Scalar* number() const { return std::get_if<at::Scalar>(&value_); }

 private:
  template <typename Pointer>
  Pointer get() const {
    const Pointer* held = std::get_if<Pointer>(&value_);
    return held ? *held : nullptr;
  }

  std::variant<const TensorDict*, const at::Tensor*, at::Scalar> value_;
};

namespace internal {

/// A tree and its operands, such that one operator of LibTorch a leaf does the rest.
struct Aligned {
  /// The leaves of the tree, then what meets each of them from every operand, in the order of the tree.
  std::vector<std::vector<at::Tensor>> sides;
  /// That of the result.
  std::vector<int64_t> batch_size;
};

/// Aligns `operands` to `tree` as the head of this file says; a number becomes a tensor for every leaf.
/// \throws c10::ValueError listing every key that only one of two trees has, or both batch sizes if they do not
///     broadcast.
Aligned align(const char* call, const TensorDict& tree, std::initializer_list<const Operand*> operands);

/// The same for an operation that writes to the leaves of `tree`, whose sides[0] does not count.
/// \throws c10::ValueError also listing every leaf that would have to have more dims.
Aligned align_in_place(const char* call, const TensorDict& tree, std::initializer_list<const Operand*> operands);

/// Checks that a number may multiply whole numbers: LibTorch checks this for some functions, and cuts it for others.
/// \throws c10::ValueError listing every leaf whose result has a dtype that does not take `factor`.
void check_factor(const char* call, const TensorDict& tree, const std::vector<std::vector<at::Tensor>>& sides,
                  const at::Scalar& factor);

}  // namespace internal
}  // namespace graft
