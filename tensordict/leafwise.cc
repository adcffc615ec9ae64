#include "tensordict/leafwise.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <sstream>

namespace graft {

TensorDict zeros_like(const TensorDict& tree) {
  return tree.map([](const at::Tensor& value) { return at::zeros_like(value); });
}

TensorDict ones_like(const TensorDict& tree) {
  return tree.map([](const at::Tensor& value) { return at::ones_like(value); });
}

TensorDict full_like(const TensorDict& tree, const at::Scalar& fill) {
  return tree.map([&](const at::Tensor& value) { return at::full_like(value, fill); });
}

TensorDict detach(const TensorDict& tree) {
  return tree.map([](const at::Tensor& value) { return value.detach(); });
}

TensorDict clone(const TensorDict& tree) {
  return tree.map([](const at::Tensor& value) { return value.clone(); });
}

TensorDict to(const TensorDict& tree, at::ScalarType dtype) {
  return tree.map([&](const at::Tensor& value) { return value.to(dtype); });
}

TensorDict to(const TensorDict& tree, at::Device device) {
  return tree.map([&](const at::Tensor& value) { return value.to(device); });
}

const TensorDict& requires_grad_(const TensorDict& tree, bool requires_grad) {
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    const bool has_gradients = value.is_floating_point() || value.is_complex();
    if (requires_grad && !has_gradients) {
      problems << "\n  \"" << path << "\": dtype " << value.dtype() << ", expected a floating or complex one";
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "requires_grad_: these leaves cannot have gradients:", text);
  for (const at::Tensor& value : tree.values()) value.requires_grad_(requires_grad);
  return tree;
}

}  // namespace graft
