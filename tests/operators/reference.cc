#include "tests/operators/reference.h"

#include <torch/csrc/autograd/autograd.h>

#include "tests/operators/differences.h"
#include "tests/operators/tensor_lists.h"

namespace graft::testing {
namespace {

Tensors gradients(const Tensor& of, const Tensors& leaves, bool create_graph) {
  auto result = torch::autograd::grad({of}, leaves, {}, /*retain_graph=*/true, create_graph, /*allow_unused=*/true);
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    if (!result[k].defined()) result[k] = torch::zeros_like(leaves[k]);
    if (result[k].is_sparse()) result[k] = result[k].to_dense();
  }
  return result;
}

/// One row for each element: [elements of the result, elements of the leaves].
Tensor rows(const Tensor& of, const Tensors& leaves) {
  const Tensor elements = of.reshape({-1});
  Tensors all;
  for (int64_t e = 0; e < elements.numel(); ++e) {
    const Tensor element = elements[e];
    all.push_back(element.requires_grad() ? flat(gradients(element, leaves, false)) : flat(leaves).detach() * 0);
  }
  return torch::stack(all);
}

}  // namespace

Tensor Reference::output(std::size_t m, const Tensors& inputs) const {
  return subject_.plain(subject_.values(m, inputs), m, inputs).detach();
}

Tensor Reference::jacobian(std::size_t i) const {
  Tensors leaves;
  return rows(subject_.plain(subject_.values(0, i), 0, subject_.samples()[i], &leaves), leaves);
}

Tensor Reference::second_derivative() const {
  Tensors leaves;
  const Tensor first = gradient(subject_.values(0, 0), 0, 0, &leaves);
  return rows(first, leaves);
}

Tensor Reference::gradient_by_differences(std::size_t m, std::size_t i) const {
  const auto loss_at = [&](const Tensors& at) {
    return (subject_.plain(at, m, subject_.samples()[i]) * subject_.weights()).sum().detach();
  };
  return differences(loss_at, subject_.values(m, i)).reshape({-1});
}

Tensor Reference::difference_of_outputs(std::size_t i, const Tensors& along) const {
  return difference([&](const Tensors& at) { return subject_.plain(at, 0, subject_.samples()[i]).detach(); },
                    subject_.values(0, i), along);
}

Tensor Reference::jacobian_by_differences(std::size_t i) const {
  return differences([&](const Tensors& at) { return subject_.plain(at, 0, subject_.samples()[i]).detach(); },
                     subject_.values(0, i));
}

Tensor Reference::difference_of_gradients(const Tensors& along) const {
  return difference([&](const Tensors& at) { return gradient(at, 0, 0); }, subject_.values(0, 0), along);
}

Tensor Reference::second_derivative_by_differences() const {
  return differences([&](const Tensors& at) { return gradient(at, 0, 0); }, subject_.values(0, 0));
}

Tensor Reference::gradient(const Tensors& at, std::size_t m, std::size_t i, Tensors* leaves) const {
  Tensors own;
  Tensors& of = leaves != nullptr ? *leaves : own;
  const Tensor loss = (subject_.plain(at, m, subject_.samples()[i], &of) * subject_.weights()).sum();
  return flat(gradients(loss, of, leaves != nullptr));
}

}  // namespace graft::testing
