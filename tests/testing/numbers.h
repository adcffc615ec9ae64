// Values in double, for tests that know the right numbers: `EXPECT_THAT(list_of(y), Near({840, 951}))`.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <vector>

namespace graft::testing {

/// Returns a tensor of `shape` in double.
inline at::Tensor numbers(const std::vector<double>& values, const std::vector<int64_t>& shape) {
  return at::tensor(values, at::kDouble).reshape(shape);
}

/// Returns 0, 1, 2, ... in `shape`, in double.
inline at::Tensor iota(const std::vector<int64_t>& shape) {
  return at::arange(c10::multiply_integers(shape), at::kDouble).reshape(shape);
}

/// Returns the elements in order, of any dtype.
inline std::vector<double> list_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).contiguous().flatten();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

/// Matches a list of as many numbers, each at most `tolerance` away.
inline auto Near(const std::vector<double>& values, double tolerance = 1e-12) {
  return ::testing::Pointwise(::testing::DoubleNear(tolerance), values);
}

}  // namespace graft::testing
