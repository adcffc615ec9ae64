// Per-sample gradients by vmap(grad) against the plain loop of backward passes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "vmap/vmap.h"

namespace {

/// Holds a raw parameter; no annotation.
struct RawImpl : torch::nn::Module {
  RawImpl() { w = register_parameter("w", torch::randn({3, 3})); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(w)) * w[0]; }
  torch::Tensor w;
};

/// The same class, annotated.
struct AnnotatedImpl : torch::nn::Module {
  AnnotatedImpl() { w_ = register_parameter("w", torch::randn({3, 3})); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(w_)) * w_[0]; }

 private:
  torch::Tensor w_;
};

/// Calls its sub-module twice.
struct TwiceImpl : torch::nn::Module {
  TwiceImpl() { fc = register_module("fc", torch::nn::Linear(3, 3)); }
  torch::Tensor forward(const torch::Tensor& x) { return fc(torch::tanh(fc(x))); }
  torch::nn::Linear fc = nullptr;
};

/// The decoder uses the encoder's weight.
struct TiedImpl : torch::nn::Module {
  TiedImpl() {
    encoder = register_module("encoder", torch::nn::Linear(3, 3));
    decoder = register_module("decoder", torch::nn::Linear(3, 3));
    decoder->weight = encoder->weight;
  }
  torch::Tensor forward(const torch::Tensor& x) { return decoder(torch::tanh(encoder(x))); }
  torch::nn::Linear encoder = nullptr, decoder = nullptr;
};

}  // namespace

GRAFT_SLOTS(AnnotatedImpl, w_)

namespace graft {
namespace {

template <typename Module>
void expect_equal_to_the_loop(Module& module, const Tensor& inputs) {
  module.to(torch::kDouble);
  const TensorDict params = from_module(module, State::kParameters);
  const auto loss = [&](const TensorDict& p, const Tensor& x) {
    return functional_call(module, p, x.unsqueeze(0)).square().sum();
  };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, inputs);
  for (int64_t i = 0; i < inputs.size(0); ++i) {
    const auto expected =
        torch::autograd::grad({module.forward(inputs[i].unsqueeze(0)).square().sum()}, params.values(), {}, {},
                              /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t k = 0; k < expected.size(); ++k) {
      const Tensor reference = expected[k].defined() ? expected[k] : torch::zeros_like(params.values()[k]);
      EXPECT_TRUE(gradients.values()[k][i].allclose(reference, 1e-12, 1e-12)) << params.keys()->path(k);
    }
  }
}

template <typename Module>
void expect_equal_to_the_loop() {
  torch::manual_seed(0);
  Module module;
  expect_equal_to_the_loop(module, torch::randn({4, 3}, torch::kDouble));
}

TEST(PerSampleGradTest, EqualsTheLoopForAnUnknownClass) { expect_equal_to_the_loop<RawImpl>(); }
TEST(PerSampleGradTest, EqualsTheLoopForAnAnnotatedClass) { expect_equal_to_the_loop<AnnotatedImpl>(); }
TEST(PerSampleGradTest, EqualsTheLoopForASubModuleCalledTwice) { expect_equal_to_the_loop<TwiceImpl>(); }
TEST(PerSampleGradTest, EqualsTheLoopForTiedWeights) { expect_equal_to_the_loop<TiedImpl>(); }

TEST(PerSampleGradTest, EqualsTheLoopForAConvolution) {
  torch::manual_seed(0);
  torch::nn::Conv2d conv(torch::nn::Conv2dOptions(2, 3, 3).padding(1));
  expect_equal_to_the_loop(*conv, torch::randn({4, 2, 5, 5}, torch::kDouble));
}

}  // namespace
}  // namespace graft
