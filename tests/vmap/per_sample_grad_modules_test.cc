// Per-sample gradients of every torch::nn module that holds tensors, by vmap(grad), against the loop of backward
// passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "tests/testing/throws_with.h"
#include "tests/testing/torch_modules.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using testing::torch_modules;
using testing::TorchModule;

constexpr int64_t kSamples = 3;

/// An entry of the catalog that LibTorch cannot map.
struct Exception {
  std::string name;
  std::string reason;
  std::string message;  ///< a part of what LibTorch says
};

std::ostream& operator<<(std::ostream& out, const Exception& exception) { return out << exception.name; }

const std::vector<Exception>& exceptions() {
  static const std::vector<Exception> all = [] {
    std::vector<Exception> list;
    const auto add = [&](const std::string& reason, const std::string& message, const std::vector<std::string>& names) {
      for (const std::string& name : names) list.push_back({name, reason, message});
    };
    add("writes num_batches_tracked in place", "would mutate a captured Tensor",
        {"BatchNorm1dInTraining", "BatchNorm2dInTraining", "BatchNorm3dInTraining"});
    add("writes the running statistics in place", "running_mean or running_var, which will be updated in place",
        {"InstanceNorm1dWithStatisticsInTraining", "InstanceNorm2dWithStatisticsInTraining",
         "InstanceNorm3dWithStatisticsInTraining"});
    add("writes the weight in place", "embedding_renorm_", {"EmbeddingWithMaxNorm", "EmbeddingBagWithMaxNorm"});
    add("has a sparse gradient", "SparseCPU", {"EmbeddingSparse"});
    add("has a sparse gradient", "use sparse=false", {"EmbeddingBagSparse"});
    add("decides by the values of the target", "aten::nonzero", {"AdaptiveLogSoftmaxWithLoss"});
    return list;
  }();
  return all;
}

/// Calls a module of the catalog by one `forward`. A module without parameters, such as a loss, gets one: a shift of
/// its input.
struct Net : torch::nn::Module {
  explicit Net(const TorchModule& module_entry)
      : entry(module_entry), body(register_module("body", module_entry.make())) {
    if (body->parameters().empty()) shift = register_parameter("shift", torch::zeros({3}));
    to(torch::kDouble);
  }

  Tensor forward(std::vector<Tensor> inputs) {
    if (shift.defined()) inputs[0] = inputs[0] + shift;
    return entry.call(*body, inputs);
  }

  const TorchModule& entry;
  std::shared_ptr<torch::nn::Module> body;
  Tensor shift;
};

std::vector<std::vector<Tensor>> draw_samples(const TorchModule& entry) {
  std::vector<std::vector<Tensor>> samples;
  for (int64_t i = 0; i < kSamples; ++i) samples.push_back(entry.inputs());
  return samples;
}

std::vector<Tensor> stack_samples(const std::vector<std::vector<Tensor>>& samples) {
  std::vector<Tensor> stacked;
  for (std::size_t k = 0; k < samples[0].size(); ++k) {
    std::vector<Tensor> column;
    for (const auto& sample : samples) column.push_back(sample[k]);
    stacked.push_back(torch::stack(column));
  }
  return stacked;
}

TensorDict per_sample_gradients(Net& net, const std::vector<std::vector<Tensor>>& samples) {
  const auto loss = [&](const TensorDict& p, const std::vector<Tensor>& x) {
    return functional_call(net, p, x).square().sum();
  };
  return vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(from_module(net, State::kParameters), stack_samples(samples));
}

/// Returns the gradients of one sample, zeros where there is none.
std::vector<Tensor> gradients_of_sample(Net& net, const std::vector<Tensor>& sample) {
  const auto parameters = net.parameters();
  auto gradients = torch::autograd::grad({net.forward(sample).square().sum()}, parameters, {}, {},
                                         /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t k = 0; k < gradients.size(); ++k) {
    if (!gradients[k].defined()) gradients[k] = torch::zeros_like(parameters[k]);
  }
  return gradients;
}

bool is_exception(const TorchModule& entry) {
  return std::any_of(exceptions().begin(), exceptions().end(),
                     [&](const Exception& exception) { return exception.name == entry.name; });
}

std::vector<TorchModule> mappable_modules() {
  std::vector<TorchModule> mappable;
  for (const TorchModule& entry : torch_modules()) {
    if (!is_exception(entry)) mappable.push_back(entry);
  }
  return mappable;
}

template <typename Value>
std::string name_of(const ::testing::TestParamInfo<Value>& info) {
  return info.param.name;
}

class PerSampleGradModulesTest : public ::testing::TestWithParam<TorchModule> {};

TEST_P(PerSampleGradModulesTest, EqualsTheLoop) {
  torch::manual_seed(0);
  Net net(GetParam());
  const auto samples = draw_samples(GetParam());
  const TensorDict gradients = per_sample_gradients(net, samples);
  double size = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const auto expected = gradients_of_sample(net, samples[i]);
    ASSERT_EQ(gradients.values().size(), expected.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const Tensor& gradient = gradients.values()[k][i];
      EXPECT_TRUE(gradient.allclose(expected[k], 1e-12, 1e-12))
          << gradients.keys()->path(k) << " of sample " << i << " differs by up to "
          << (gradient - expected[k]).abs().max().item<double>();
      size += expected[k].abs().sum().item<double>();
    }
  }
  EXPECT_GT(size, 0) << "a gradient of zeros compares nothing";
}

INSTANTIATE_TEST_SUITE_P(TorchNn, PerSampleGradModulesTest, ::testing::ValuesIn(mappable_modules()),
                         name_of<TorchModule>);

class PerSampleGradExceptionsTest : public ::testing::TestWithParam<Exception> {};

TEST_P(PerSampleGradExceptionsTest, StillThrows) {
  std::cout << GetParam().name << ": " << GetParam().reason << std::endl;
  const auto entry = std::find_if(torch_modules().begin(), torch_modules().end(),
                                  [](const TorchModule& module) { return module.name == GetParam().name; });
  ASSERT_NE(entry, torch_modules().end()) << "not in the catalog";
  torch::manual_seed(0);
  Net net(*entry);
  const auto samples = draw_samples(*entry);
  EXPECT_THAT([&] { per_sample_gradients(net, samples); }, ThrowsWith<std::exception>(GetParam().message));
  for (const auto& sample : samples) gradients_of_sample(net, sample);  // the loop does not throw
}

INSTANTIATE_TEST_SUITE_P(TorchNn, PerSampleGradExceptionsTest, ::testing::ValuesIn(exceptions()), name_of<Exception>);

}  // namespace
}  // namespace graft
