#include "tests/operators/tensor_lists.h"

namespace graft::testing {

Tensors concatenated(Tensors left, const Tensors& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

Tensor flat(const Tensors& tensors) {
  Tensors rows;
  for (const Tensor& tensor : tensors) rows.push_back(tensor.reshape({-1}));
  return torch::cat(rows);
}

Tensors like(const Tensors& shapes, const Tensor& elements) {
  Tensors tensors;
  int64_t begin = 0;
  for (const Tensor& shape : shapes) {
    tensors.push_back(elements.narrow(0, begin, shape.numel()).reshape(shape.sizes()));
    begin += shape.numel();
  }
  return tensors;
}

Tensors randn_like(const Tensors& shapes) {
  Tensors drawn;
  for (const Tensor& shape : shapes) drawn.push_back(torch::randn_like(shape));
  return drawn;
}

Tensors copies(const Tensors& tensors) {
  Tensors copied;
  for (const Tensor& tensor : tensors) copied.push_back(tensor.detach().clone());
  return copied;
}

Tensor dot(const Tensors& left, const Tensors& right) {
  Tensor sum = (left[0] * right[0]).sum();
  for (std::size_t k = 1; k < left.size(); ++k) sum = sum + (left[k] * right[k]).sum();
  return sum;
}

Tensors moved(const Tensors& values, const Tensors& direction, double step) {
  Tensors result;
  for (std::size_t k = 0; k < values.size(); ++k) result.push_back(values[k] + step * direction[k]);
  return result;
}

}  // namespace graft::testing
