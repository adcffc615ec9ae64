// Activation, dropout and container modules.
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/moduledict.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace nn = torch::nn;

const auto x = floats({{2, 4}});

const Registration kActivations([](Catalog& all) {
  all.module<nn::CELUImpl>("CELU", x);
  all.module<nn::ELUImpl>("ELU", x);
  all.module<nn::GELUImpl>("GELU", x);
  all.module<nn::GELUImpl>("GELU, tanh", x, nn::GELUOptions().approximate("tanh"));
  all.module<nn::GLUImpl>("GLU", x);
  all.module<nn::HardshrinkImpl>("Hardshrink", x);
  all.module<nn::HardtanhImpl>("Hardtanh", x);
  all.module<nn::IdentityImpl>("Identity", x);
  all.module<nn::LeakyReLUImpl>("LeakyReLU", x);
  all.module<nn::LogSigmoidImpl>("LogSigmoid", x);
  all.module<nn::LogSoftmaxImpl>("LogSoftmax", x, 1);
  all.module<nn::MishImpl>("Mish", x);
  in_eval(all.module<nn::RReLUImpl>("RReLU", x));
  all.module<nn::RReLUImpl>("RReLU, in training", x).is_random = true;
  all.module<nn::ReLUImpl>("ReLU", x);
  all.module<nn::ReLU6Impl>("ReLU6", x);
  all.module<nn::SELUImpl>("SELU", x);
  all.module<nn::SiLUImpl>("SiLU", x);
  all.module<nn::SigmoidImpl>("Sigmoid", x);
  all.module<nn::SoftmaxImpl>("Softmax", x, 1);
  all.module<nn::Softmax2dImpl>("Softmax2d", floats({{1, 3, 2, 2}}));
  all.module<nn::SoftminImpl>("Softmin", x, 1);
  all.module<nn::SoftplusImpl>("Softplus", x);
  all.module<nn::SoftshrinkImpl>("Softshrink", x);
  all.module<nn::SoftsignImpl>("Softsign", x);
  all.module<nn::TanhImpl>("Tanh", x);
  all.module<nn::TanhshrinkImpl>("Tanhshrink", x);
  all.module<nn::ThresholdImpl>("Threshold", x, nn::ThresholdOptions(0.1, 2));
});

template <class Impl>
void add_dropout(Catalog& all, const std::string& name, const Shape& shape) {
  all.module<Impl>(name, floats({shape}), nn::DropoutOptions(0.4)).is_random = true;
  in_eval(all.module<Impl>(name + ", not in training", floats({shape})));
  all.module<Impl>(name + ", of probability 0", floats({shape}), nn::DropoutOptions(0));
}

const Registration kDropouts([](Catalog& all) {
  add_dropout<nn::AlphaDropoutImpl>(all, "AlphaDropout", {2, 4});
  add_dropout<nn::DropoutImpl>(all, "Dropout", {2, 4});
  add_dropout<nn::Dropout2dImpl>(all, "Dropout2d", {2, 3, 2, 2});
  add_dropout<nn::Dropout3dImpl>(all, "Dropout3d", {2, 3, 1, 2, 2});
  add_dropout<nn::FeatureAlphaDropoutImpl>(all, "FeatureAlphaDropout", {2, 3, 2});
});

/// Calls each element of a container in turn.
template <class Impl>
Tensor call_each(nn::Module& container, const Tensors& in) {
  Tensor y = in[0];
  for (const auto& child : dynamic_cast<Impl&>(container).children())
    y = child->template as<nn::LinearImpl>()->forward(y).tanh();
  return y;
}

const Registration kContainers([](Catalog& all) {
  const auto inputs = floats({{2, 3}});
  const auto linear = [](int64_t from, int64_t to) { return nn::Linear(from, to); };
  all.module<nn::FunctionalImpl>("Functional", inputs, [] { return torch::tanh; });
  all.add({.name = "ModuleList",
           .inputs = inputs,
           .make = [=] { return std::make_shared<nn::ModuleListImpl>(linear(3, 2), linear(2, 3)); },
           .forward = call_each<nn::ModuleListImpl>});
  all.add({.name = "ModuleDict",
           .inputs = inputs,
           .make =
               [=] {
                 const std::vector<std::pair<std::string, std::shared_ptr<nn::Module>>> layers = {
                     {"first", linear(3, 2).ptr()}, {"second", linear(2, 3).ptr()}};
                 return std::make_shared<nn::ModuleDictImpl>(layers);
               },
           .forward = call_each<nn::ModuleDictImpl>});
  all.add({.name = "Sequential",
           .inputs = inputs,
           .make = [=] { return std::make_shared<nn::SequentialImpl>(linear(3, 4), nn::Tanh(), linear(4, 2)); },
           .forward = [](nn::Module& m,
                         const Tensors& in) { return dynamic_cast<nn::SequentialImpl&>(m).forward(in[0]); }});
});

}  // namespace
}  // namespace graft::testing
