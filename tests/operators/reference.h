// Reference: what transforms of an operator must give, by ordinary autograd and by finite differences.
#pragma once

#include <cstddef>

#include "tests/operators/operator.h"
#include "tests/operators/subject.h"

namespace graft::testing {

/// Everything is of module m on sample i.
class Reference {
 public:
  /// \param subject outlives this
  explicit Reference(const Subject& subject) : subject_(subject) {}

  Tensor output(std::size_t m, std::size_t i) const { return output(m, subject_.samples()[i]); }
  Tensor output(std::size_t m, const Tensors& inputs) const;

  /// The gradient of a number made of the output.
  Tensor gradient(std::size_t m, std::size_t i) const { return gradient(subject_.values(m, i), m, i); }

  /// The derivatives of the output's elements, of the first module.
  Tensor jacobian(std::size_t i) const;

  /// The derivatives of the gradient's elements, of the first module on the first sample.
  Tensor second_derivative() const;

  // --- By finite differences

  Tensor gradient_by_differences(std::size_t m, std::size_t i) const;
  Tensor difference_of_outputs(std::size_t i, const Tensors& along) const;
  Tensor jacobian_by_differences(std::size_t i) const;
  Tensor difference_of_gradients(const Tensors& along) const;
  Tensor second_derivative_by_differences() const;

 private:
  /// Recorded for another derivative if `leaves` are wanted.
  Tensor gradient(const Tensors& at, std::size_t m, std::size_t i, Tensors* leaves = nullptr) const;

  const Subject& subject_;
};

}  // namespace graft::testing
