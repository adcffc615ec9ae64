// The levels of LibTorch's functorch stack as scopes: the one place that touches ATen/functorch, which changes between
// releases of LibTorch.
//
// A level is pushed on the calling thread's stack by a constructor and popped by the destructor, whatever happens in
// between, and inner levels end first. Tensors enter a level as wrappers of that level (`batch`, `wrap`), operators on
// them pass through the level, and results leave it without the wrapper (`unbatch`, `unwrap`).
//
//   VmapLevel level(/*batch_size=*/5, Randomness::kError);
//   Tensor sums = level.unbatch(level.batch(x, 0).sum(), 0);   // [5, ...] -> [5]
//
// It is not for users: vmap and grad check their arguments, these classes do not.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <cstdint>
#include <optional>

namespace graft {

/// What a random operator does inside vmap.
enum class Randomness {
  kError,      ///< It throws: one must say which of the two is meant.
  kSame,       ///< Every sample draws the same numbers.
  kDifferent,  ///< Every sample draws its own numbers.
};

namespace internal {

/// One level of the stack, popped at the end of its life.
class [[nodiscard]] TransformLevel {
 public:
  TransformLevel(const TransformLevel&) = delete;
  TransformLevel& operator=(const TransformLevel&) = delete;

 protected:
  explicit TransformLevel(int64_t number) : number_(number) {}
  ~TransformLevel();
  int64_t number() const { return number_; }

 private:
  const int64_t number_;
};

/// A level whose wrappers hide one dim of size `batch_size`.
class [[nodiscard]] VmapLevel : private TransformLevel {
 public:
  VmapLevel(int64_t batch_size, Randomness randomness);

  /// Hides dim `dim` (not negative) of `tensor`.
  at::Tensor batch(const at::Tensor& tensor, int64_t dim) const;

  /// Shows the hidden dim as dim `dim` (not negative) of the result. A tensor without a hidden dim is expanded.
  at::Tensor unbatch(const at::Tensor& tensor, int64_t dim) const;

  /// Says whether `tensor` has a dim that this level hides.
  bool is_batched(const at::Tensor& tensor) const;

  int64_t batch_size() const { return batch_size_; }

 private:
  const int64_t batch_size_;
};

/// A level with a graph of its own. Grad mode is on inside and inference mode off; operators that leave the level see
/// the modes from before, so that a no_grad outside does not stop the derivative inside and nothing is recorded
/// outside.
class [[nodiscard]] GradLevel : private TransformLevel {
 public:
  GradLevel();

  /// Returns `tensor` as a value of this level that requires no grad in it.
  at::Tensor wrap(const at::Tensor& tensor) const;

  /// Returns the value below this level; a tensor of another level as it is.
  at::Tensor unwrap(const at::Tensor& tensor) const;

  /// Says whether `tensor` depends in this level on something that requires grad in it.
  bool requires_grad(const at::Tensor& tensor) const;

  /// Says whether a level further out, or ordinary autograd, will differentiate through `tensor`, a value of this
  /// level, or differentiates everything forward.
  bool is_differentiated_outside(const at::Tensor& tensor) const;

 private:
  const bool outer_grad_mode_;
  std::optional<c10::InferenceMode> no_inference_mode_;
  c10::AutoGradMode grad_mode_;
};

/// Keeps the one level of forward-mode derivatives that LibTorch has open. It is the process's, not the thread's:
/// whoever needs it holds it, and it closes when nobody does.
class [[nodiscard]] ForwardDerivatives {
 public:
  ForwardDerivatives();
  ~ForwardDerivatives();
  ForwardDerivatives(const ForwardDerivatives&) = delete;
  ForwardDerivatives& operator=(const ForwardDerivatives&) = delete;
};

/// A level whose values carry tangents. The forward-mode derivative is taken inside, whether or not it is taken
/// outside; inference mode is off.
class [[nodiscard]] JvpLevel : private TransformLevel {
 public:
  JvpLevel();

  /// Returns a value of this level that has a tangent, a tensor of its shape.
  at::Tensor with_tangent(const at::Tensor& tensor, const at::Tensor& tangent) const;

  /// Returns the value below this level; a tensor of another level as it is.
  at::Tensor value(const at::Tensor& tensor) const;

  /// Returns the tangent below this level, or an undefined tensor if there is none.
  at::Tensor tangent(const at::Tensor& tensor) const;

 private:
  std::optional<c10::InferenceMode> no_inference_mode_;
  c10::AutoFwGradMode forward_mode_;
  ForwardDerivatives derivatives_;
};

/// Returns `tensor`, but ordinary zeros for LibTorch's zeros without memory: some derivatives are such, and nothing can
/// be written to them.
at::Tensor with_memory(const at::Tensor& tensor);

/// Returns the value of a level that has ended; any other tensor as it is.
at::Tensor without_ended_level(const at::Tensor& tensor);

/// Says whether a level of this thread's stack takes a forward-mode derivative. A backward pass inside must be recorded
/// as if it were differentiated backward: only then do LibTorch's formulas compute from tensors that carry tangents.
/// The gradient of linalg_solve, for one, otherwise uses a factorization without them, and is silently wrong.
bool is_differentiated_forward();

/// Returns how many levels this thread's stack has.
int64_t depth();

}  // namespace internal
}  // namespace graft
