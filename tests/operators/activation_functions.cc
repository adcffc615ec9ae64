// Activations, dropouts and normalisation of torch::nn::functional.
#include <torch/nn/functional/activation.h>
#include <torch/nn/functional/dropout.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace F = torch::nn::functional;

const Refusal kSharedDirection = {
    "In place on a mapped tensor, with one direction for all samples: what is mapped cannot be written into a tangent "
    "that is not. Map the direction too, or do not write in place.",
    "vmap"};

const Registration kActivations([](Catalog& all) {
  const auto x = floats({{2, 4}});
  all.function("celu", x, [](auto& in) { return F::celu(in[0], F::CELUFuncOptions().alpha(0.7)); });
  all.function("elu", x, [](auto& in) { return F::elu(in[0], F::ELUFuncOptions().alpha(0.7)); });
  all.function("gelu", x, [](auto& in) { return F::gelu(in[0]); });
  all.function("gelu, tanh", x, [](auto& in) { return F::gelu(in[0], F::GELUFuncOptions().approximate("tanh")); });
  all.function("glu", x, [](auto& in) { return F::glu(in[0], F::GLUFuncOptions(1)); });
  all.function("hardshrink", x, [](auto& in) { return F::hardshrink(in[0], F::HardshrinkFuncOptions(0.4)); });
  all.function("hardtanh", x, [](auto& in) { return F::hardtanh(in[0], F::HardtanhFuncOptions().max_val(0.5)); });
  all.function("leaky_relu", x, [](auto& in) { return F::leaky_relu(in[0]); });
  all.function("log_softmax", x, [](auto& in) { return F::log_softmax(in[0], 1); });
  all.function("logsigmoid", x, [](auto& in) { return F::logsigmoid(in[0]); });
  all.function("mish", x, [](auto& in) { return F::mish(in[0]); });
  all.function("prelu", floats({{2, 4}, {1}}), [](auto& in) { return F::prelu(in[0], in[1]); });
  all.function("prelu, by channels", floats({{2, 3, 2}, {3}}), [](auto& in) { return F::prelu(in[0], in[1]); });
  all.function("relu", x, [](auto& in) { return F::relu(in[0]); });
  all.function("relu6", x, [](auto& in) { return F::relu6(in[0] * 5); });
  all.function("rrelu", x, [](auto& in) { return F::rrelu(in[0], F::RReLUFuncOptions().lower(0.1).upper(0.4)); });
  all.function("rrelu, in training", x, [](auto& in) { return F::rrelu(in[0], F::RReLUFuncOptions().training(true)); })
      .is_random = true;
  all.function("selu", x, [](auto& in) { return F::selu(in[0]); });
  all.function("silu", x, [](auto& in) { return F::silu(in[0]); });
  all.function("softmax", x, [](auto& in) { return F::softmax(in[0], 1); });
  all.function("softmin", x, [](auto& in) { return F::softmin(in[0], 1); });
  all.function("softplus", x, [](auto& in) { return F::softplus(in[0], F::SoftplusFuncOptions().beta(2)); });
  all.function("softshrink", x, [](auto& in) { return F::softshrink(in[0], F::SoftshrinkFuncOptions(0.4)); });
  all.function("softsign", x, [](auto& in) { return F::softsign(in[0]); });
  all.function("tanhshrink", x, [](auto& in) { return F::tanhshrink(in[0]); });
  all.function("threshold", x, [](auto& in) { return F::threshold(in[0], F::ThresholdFuncOptions(0.1, 2)); });
});

const Registration kInPlace([](Catalog& all) {
  const auto add = [&](const std::string& name, Tensor (*f)(const Tensor& x)) {
    all.function(name + ", in place", floats({{2, 4}}), [f](auto& in) { return f(in[0] * 1); }).refusal =
        kSharedDirection;
  };
  add("celu", [](const Tensor& x) { return F::celu(x, F::CELUFuncOptions().inplace(true)); });
  add("elu", [](const Tensor& x) { return F::elu(x, F::ELUFuncOptions().inplace(true)); });
  add("hardtanh", [](const Tensor& x) { return F::hardtanh(x, F::HardtanhFuncOptions().inplace(true)); });
  add("leaky_relu", [](const Tensor& x) { return F::leaky_relu(x, F::LeakyReLUFuncOptions().inplace(true)); });
  add("relu", [](const Tensor& x) { return F::relu(x, F::ReLUFuncOptions().inplace(true)); });
  add("relu6", [](const Tensor& x) { return F::relu6(x, F::ReLU6FuncOptions().inplace(true)); });
  add("rrelu", [](const Tensor& x) { return F::rrelu(x, F::RReLUFuncOptions().inplace(true)); });
  add("selu", [](const Tensor& x) { return F::selu(x, F::SELUFuncOptions().inplace(true)); });
  add("threshold", [](const Tensor& x) { return F::threshold(x, F::ThresholdFuncOptions(0.1, 2).inplace(true)); });
});

const Registration kRandom([](Catalog& all) {
  const auto add = [&](const std::string& name, const Shape& shape, Tensor (*f)(const Tensor& x, bool training)) {
    const auto x = floats({shape});
    all.function(name, x, [f](auto& in) { return f(in[0], true); }).is_random = true;
    all.function(name + ", not in training", x, [f](auto& in) { return f(in[0], false); });
  };
  add("alpha_dropout", {2, 4}, [](const Tensor& x, bool training) {
    return F::alpha_dropout(x, F::AlphaDropoutFuncOptions().p(0.4).training(training));
  });
  add("dropout", {2, 4},
      [](const Tensor& x, bool training) { return F::dropout(x, F::DropoutFuncOptions().p(0.4).training(training)); });
  add("dropout2d", {2, 3, 2, 2}, [](const Tensor& x, bool training) {
    return F::dropout2d(x, F::Dropout2dFuncOptions().p(0.4).training(training));
  });
  add("dropout3d", {2, 3, 1, 2, 2}, [](const Tensor& x, bool training) {
    return F::dropout3d(x, F::Dropout3dFuncOptions().p(0.4).training(training));
  });
  add("feature_alpha_dropout", {2, 3, 2}, [](const Tensor& x, bool training) {
    return F::feature_alpha_dropout(x, F::FeatureAlphaDropoutFuncOptions().p(0.4).training(training));
  });
  all.function("gumbel_softmax", floats({{2, 4}}),
               [](auto& in) { return F::gumbel_softmax(in[0], F::GumbelSoftmaxFuncOptions().dim(1)); })
      .is_random = true;
  Operator& hard = all.function("gumbel_softmax, hard", floats({{2, 4}}), [](auto& in) {
    return F::gumbel_softmax(in[0], F::GumbelSoftmaxFuncOptions().dim(1).hard(true));
  });
  hard.is_random = true;
  hard.holds_a_part_fixed = true;
});

}  // namespace
}  // namespace graft::testing
