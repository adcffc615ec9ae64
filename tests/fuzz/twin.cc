#include "tests/fuzz/twin.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <utility>

namespace graft::testing {
namespace {

/// Does forward write to what other handles hold too? The twin's handles share nothing.
bool writes_to_ties(const RandomNet& net, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!is_written_by_forward(net.cells()[i]) || !tensors[i].defined()) continue;
    const auto shares = [&](const Tensor& other) { return other.defined() && other.is_alias_of(tensors[i]); };
    if (std::count_if(tensors.begin(), tensors.end(), shares) > 1) return true;
  }
  return false;
}

/// The gradient of a tensor is the sum of those of the handles that hold it.
void compare_gradients(const RandomNet& net, const Comparison& expected, const Tensor& got, ComparisonCounts& counts) {
  std::map<const at::TensorImpl*, std::size_t> numbers;
  std::vector<Tensor> inputs, twin_inputs;
  std::vector<std::size_t> input_of;
  for (std::size_t i = 0; i < expected.tensors.size(); ++i) {
    const Tensor& tensor = expected.tensors[i];
    if (!tensor.defined() || !tensor.requires_grad()) continue;
    const auto [number, is_new] = numbers.emplace(tensor.unsafeGetTensorImpl(), inputs.size());
    if (is_new) inputs.push_back(tensor);
    twin_inputs.push_back(expected.twin_values[i]);
    input_of.push_back(number->second);
  }
  const auto gradients_of = [](const Tensor& result, const std::vector<Tensor>& of) {
    return torch::autograd::grad({result.square().sum()}, of, {}, {}, /*create_graph=*/false, /*allow_unused=*/true);
  };
  torch::autograd::variable_list twin_gradients;
  try {
    twin_gradients = gradients_of(expected.expected.result, twin_inputs);
  } catch (const c10::Error&) {
    return;  // LibTorch has none for a normalisation with a bias and no weight
  }
  const auto gradients = gradients_of(got, inputs);
  std::vector<Tensor> sums(inputs.size());
  for (std::size_t i = 0; i < twin_gradients.size(); ++i) {
    Tensor& sum = sums[input_of[i]];
    if (twin_gradients[i].defined()) sum = sum.defined() ? sum + twin_gradients[i] : twin_gradients[i];
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    ++counts.gradients;
    ASSERT_EQ(gradients[i].defined(), sums[i].defined());
    if (!sums[i].defined()) continue;
    const bool in_double = sums[i].scalar_type() == torch::kDouble && net.x().scalar_type() == torch::kDouble;
    const double tolerance = in_double ? 1e-10 : 1e-3;
    ASSERT_TRUE(gradients[i].allclose(sums[i], tolerance, tolerance)) << gradients[i] << sums[i];
  }
}

}  // namespace

bool is_written_by_forward(const Cell& cell) {
  if (!cell.member.starts_with("running_") && cell.member != "num_batches_tracked") return false;
  const auto& norm = dynamic_cast<const torch::nn::BatchNorm1dImpl&>(*cell.module);
  return norm.is_training() || !norm.options.track_running_stats();
}

std::optional<Comparison> Twin::forward(RandomNet& net, const SwapScope& scope, const Redirects& redirects) {
  Comparison comparison;
  for (std::size_t i = 0; i < net.cells().size(); ++i) {
    if (net.cells()[i].handle() == nullptr) return std::nullopt;  // a body has unregistered it
    const Tensor tensor = redirects.read_in(scope, net.cells()[i]);
    Tensor value = copy_of(tensor);
    if (tensor.defined()) value.set_requires_grad(tensor.requires_grad());
    *net_.cells()[i].handle() = value;
    comparison.twin_values.push_back(value);
    comparison.tensors.push_back(tensor);
  }
  if (writes_to_ties(net, comparison.tensors)) return std::nullopt;
  const Unredirected guard;
  std::size_t called = 0;
  if (scope.swap.mechanism == Mechanism::kCall) {
    called = std::find(net.nets().begin(), net.nets().end(), scope.swap.called) - net.nets().begin();
  }
  comparison.expected = outcome_of([&] {
    return scope.swap.mechanism == Mechanism::kCall ? net_.nets()[called]->forward(net.x())
                                                    : net_.root().forward(net.x());
  });
  return comparison;
}

void compare(const RandomNet& net, const Comparison& expected, const Outcome& got, bool with_gradients,
             ComparisonCounts& counts) {
  const Unredirected guard;
  const Tensor& result = expected.expected.result;
  ASSERT_EQ(got.result.defined(), result.defined()) << "net: " << got.error << "\ntwin: " << expected.expected.error;
  if (!result.defined()) {
    ++counts.same_failures;
    return;
  }
  ++counts.same_results;
  const bool in_double = result.scalar_type() == torch::kDouble && net.x().scalar_type() == torch::kDouble;
  const double tolerance = in_double ? 1e-12 : 1e-5;
  ASSERT_EQ(got.result.scalar_type(), result.scalar_type());
  ASSERT_TRUE(got.result.allclose(result, tolerance, tolerance)) << got.result << result;
  ASSERT_EQ(got.result.requires_grad(), result.requires_grad());
  if (with_gradients && result.requires_grad()) compare_gradients(net, expected, got.result, counts);
}

}  // namespace graft::testing
