#include "tests/operators/differences.h"

#include "tests/operators/tensor_lists.h"

namespace graft::testing {
namespace {

constexpr double kStep = 1e-5;

}  // namespace

Tensor difference(const std::function<Tensor(const Tensors&)>& f, const Tensors& at, const Tensors& direction) {
  return (f(moved(at, direction, kStep)) - f(moved(at, direction, -kStep))) / (2 * kStep);
}

Tensor differences(const std::function<Tensor(const Tensors&)>& f, const Tensors& at) {
  const Tensor directions = torch::eye(flat(at).numel(), torch::kDouble);
  Tensors columns;
  for (int64_t i = 0; i < directions.size(0); ++i) {
    columns.push_back(difference(f, at, like(at, directions[i])).reshape({-1}));
  }
  return torch::stack(columns, 1);
}

}  // namespace graft::testing
