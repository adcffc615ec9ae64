#include "tests/operators/subject.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "functional/module_state.h"
#include "tests/operators/tensor_lists.h"

namespace graft::testing {
namespace {

constexpr uint64_t kSeed = 7;  // of what random operators draw

}  // namespace

Tensors values_of(const Variables& variables) { return concatenated(variables.params.values(), variables.inputs); }

OperatorNet::OperatorNet(const Operator& op) : op_(op), body_(register_module("body", op.make())) {
  to(torch::kDouble);
  const torch::NoGradGuard no_grad;
  for (Tensor& parameter : parameters()) parameter.normal_();
  for (Tensor& buffer : buffers()) {
    if (buffer.is_floating_point()) buffer.uniform_(0.5, 1.5);
  }
}

Subject::Subject(const Operator& op) : op_(op) {
  torch::manual_seed(0);
  at::set_num_threads(1);  // inputs are tiny: threads would only wait for each other
  for (std::size_t i = 0; i < kSamples; ++i) samples_.push_back(op.inputs());
  for (; differentiable_ < std::min(op.differentiable, samples_[0].size()); ++differentiable_) {
    if (!samples_[0][differentiable_].is_floating_point()) break;
  }
  for (std::size_t m = 0; op.is_module() && m < kSamples; ++m) {
    nets_.push_back(std::make_shared<OperatorNet>(op));
    states_.push_back({copies(nets_[m]->parameters()), copies(nets_[m]->buffers())});
  }
  if (op.is_module()) {
    const auto copy = [](const Tensor& tensor) { return tensor.detach().clone(); };
    params_ = from_module(*nets_[0], State::kParameters).map(copy);
    buffers_ = from_module(*nets_[0], State::kBuffers).map(copy);
  }
  const Tensor y = plain(values(0, 0), 0, samples_[0]);
  is_floating_ = y.is_floating_point();
  output_sizes_ = y.sizes().vec();
  if (is_floating_) weights_ = torch::randn_like(y);
  for (std::size_t i = 0; i < kSamples; ++i) directions_.push_back(randn_like(values(0, 0)));
}

TensorDict Subject::fresh_buffers() const {
  return buffers_.map([](const Tensor& tensor) { return tensor.clone(); });
}

Tensors Subject::differentiable(const Tensors& inputs) const {
  return {inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(differentiable_)};
}

Tensors Subject::fixed(const Tensors& inputs) const {
  return {inputs.begin() + static_cast<std::ptrdiff_t>(differentiable_), inputs.end()};
}

Tensors Subject::values(std::size_t m, const Tensors& inputs) const {
  return op_.is_module() ? concatenated(states_[m].parameters, differentiable(inputs)) : differentiable(inputs);
}

Variables Subject::variables_like(const Tensors& list) const {
  auto next = list.begin();
  const TensorDict params = params_.map([&](const Tensor&) { return *next++; });
  return {params, Tensors(next, list.end())};
}

Tensor Subject::plain(const Tensors& at, std::size_t m, Tensors inputs, Tensors* leaves) const {
  seed();
  Tensors own;
  Tensors& of = leaves != nullptr ? *leaves : own;
  restore();
  if (op_.is_module()) of = nets_[m]->parameters();
  for (std::size_t k = 0; k < of.size(); ++k) {
    const torch::NoGradGuard no_grad;
    of[k].copy_(at[k]);
  }
  const std::size_t parameters = of.size();
  for (std::size_t k = 0; k < differentiable_; ++k) {
    inputs[k] = at[parameters + k].detach().clone().set_requires_grad(true);
    of.push_back(inputs[k]);
  }
  return op_.is_module() ? nets_[m]->forward(inputs) : op_.function(inputs);
}

void Subject::seed() const {
  if (op_.is_random) torch::manual_seed(kSeed);
}

void Subject::restore() const {
  const torch::NoGradGuard no_grad;
  for (std::size_t m = 0; m < nets_.size(); ++m) {
    const auto copy_to = [](const Tensors& to, const Tensors& from) {
      for (std::size_t k = 0; k < to.size(); ++k) to[k].copy_(from[k]);
    };
    copy_to(nets_[m]->parameters(), states_[m].parameters);
    copy_to(nets_[m]->buffers(), states_[m].buffers);
  }
}

}  // namespace graft::testing
