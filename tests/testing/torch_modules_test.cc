// The catalog of torch::nn modules against LibTorch's headers: a class that is missing fails here.
#include <gtest/gtest.h>
#include <torch/nn/pimpl.h>

#include <map>
#include <set>
#include <string>
#include <typeindex>

namespace {

/// The classes that LibTorch's headers declare, by their types.
std::map<std::type_index, std::string>& declared_classes() {
  static std::map<std::type_index, std::string> classes;
  return classes;
}

template <typename Impl>
bool note_class(const char* name) {
  return declared_classes().emplace(typeid(Impl), name).second;
}

}  // namespace

// LibTorch declares its module classes by this macro (but Sequential, which holds modules alone). The headers below it
// note each class as well.
#undef TORCH_MODULE
#define TORCH_MODULE(Name)             \
  TORCH_MODULE_IMPL(Name, Name##Impl); \
  [[maybe_unused]] const bool noted_##Name = note_class<Name##Impl>(#Name)

#include <torch/nn.h>

#include "tests/testing/torch_modules.h"

namespace graft::testing {
namespace {

namespace nn = torch::nn;

/// The modules that hold no tensors.
std::vector<std::shared_ptr<nn::Module>> stateless_modules() {
  const auto objects = [](const auto&... holders) {
    return std::vector<std::shared_ptr<nn::Module>>{holders.ptr()...};
  };
  return objects(
      // Containers of modules, and functions.
      nn::ModuleDict(), nn::ModuleList(), nn::Functional(torch::relu), nn::Identity(), nn::Flatten(),
      nn::Unflatten(nn::UnflattenOptions(0, {1, 2})), nn::Fold(nn::FoldOptions(4, 2)), nn::Unfold(2), nn::Upsample(),
      nn::PixelShuffle(2), nn::PixelUnshuffle(2),
      // Activations.
      nn::CELU(), nn::ELU(), nn::GELU(), nn::GLU(), nn::Hardshrink(), nn::Hardtanh(), nn::LeakyReLU(), nn::LogSigmoid(),
      nn::LogSoftmax(1), nn::Mish(), nn::RReLU(), nn::ReLU(), nn::ReLU6(), nn::SELU(), nn::SiLU(), nn::Sigmoid(),
      nn::Softmax(1), nn::Softmax2d(), nn::Softmin(1), nn::Softplus(), nn::Softshrink(), nn::Softsign(), nn::Tanh(),
      nn::Tanhshrink(), nn::Threshold(0, 0),
      // Dropout and normalisation.
      nn::AlphaDropout(), nn::Dropout(), nn::Dropout2d(), nn::Dropout3d(), nn::FeatureAlphaDropout(),
      nn::CrossMapLRN2d(2), nn::LocalResponseNorm(2),
      // Padding and pooling.
      nn::ConstantPad1d(1, 0), nn::ConstantPad2d(1, 0), nn::ConstantPad3d(1, 0), nn::ReflectionPad1d(1),
      nn::ReflectionPad2d(1), nn::ReflectionPad3d(1), nn::ReplicationPad1d(1), nn::ReplicationPad2d(1),
      nn::ReplicationPad3d(1), nn::ZeroPad1d(1), nn::ZeroPad2d(1), nn::ZeroPad3d(1), nn::AdaptiveAvgPool1d(1),
      nn::AdaptiveAvgPool2d(1), nn::AdaptiveAvgPool3d(1), nn::AdaptiveMaxPool1d(1), nn::AdaptiveMaxPool2d(1),
      nn::AdaptiveMaxPool3d(1), nn::AvgPool1d(1), nn::AvgPool2d(1), nn::AvgPool3d(1), nn::LPPool1d(1, 2),
      nn::LPPool2d(1, 2), nn::LPPool3d(1, 2), nn::MaxPool1d(1), nn::MaxPool2d(1), nn::MaxPool3d(1), nn::MaxUnpool1d(1),
      nn::MaxUnpool2d(1), nn::MaxUnpool3d(1), nn::FractionalMaxPool2d(nn::FractionalMaxPool2dOptions(1).output_size(1)),
      nn::FractionalMaxPool3d(nn::FractionalMaxPool3dOptions(1).output_size(1)),
      // Losses without weights, and distances.
      nn::CTCLoss(), nn::CosineEmbeddingLoss(), nn::CosineSimilarity(), nn::HingeEmbeddingLoss(), nn::HuberLoss(),
      nn::KLDivLoss(), nn::L1Loss(), nn::MSELoss(), nn::MarginRankingLoss(), nn::MultiLabelMarginLoss(),
      nn::PairwiseDistance(), nn::PoissonNLLLoss(), nn::SmoothL1Loss(), nn::SoftMarginLoss(), nn::TripletMarginLoss(),
      nn::TripletMarginWithDistanceLoss());
}

std::type_index type_of(const nn::Module& module) { return typeid(module); }

TEST(TorchModulesTest, HasEveryClassThatHoldsTensors) {
  std::set<std::type_index> covered;
  for (const TorchModule& entry : torch_modules()) covered.insert(type_of(*entry.make()));
  for (const auto& module : stateless_modules()) covered.insert(type_of(*module));
  ASSERT_GT(declared_classes().size(), 100u);
  for (const auto& [type, name] : declared_classes()) {
    EXPECT_TRUE(covered.contains(type)) << "torch::nn::" << name << " is not in the catalog";
  }
}

TEST(TorchModulesTest, HasNoClassThatHoldsNone) {
  for (const TorchModule& entry : torch_modules()) {
    const auto module = entry.make();
    EXPECT_FALSE(module->parameters().empty() && module->buffers().empty()) << entry;
  }
  for (const auto& module : stateless_modules()) {
    EXPECT_TRUE(module->parameters().empty() && module->buffers().empty()) << module->name();
  }
}

TEST(TorchModulesTest, CallsEveryModuleOnABatchOfOne) {
  for (const TorchModule& entry : torch_modules()) {
    const auto module = entry.make();
    module->to(torch::kDouble);
    EXPECT_TRUE(entry.call(*module, entry.inputs()).requires_grad() || module->parameters().empty()) << entry;
  }
}

}  // namespace
}  // namespace graft::testing
