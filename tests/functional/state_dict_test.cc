#include "functional/state_dict.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace graft {
namespace {

using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNormOptions;
using torch::nn::Linear;
using torch::nn::LinearOptions;
using torch::nn::ModuleList;

/// Saves other names than it registers, in an archive within the archive, and a number.
struct PackedImpl : torch::nn::Module {
  PackedImpl() { register_parameter("w", torch::ones({2})); }
  void save(torch::serialize::OutputArchive& archive) const override {
    torch::serialize::OutputArchive packed(archive.compilation_unit());
    packed.write("half", named_parameters()["w"] / 2);
    archive.write("packed", packed);
    archive.write("version", c10::IValue(3));
  }
};

std::vector<std::string> names_of(const TensorDict& tree) {
  std::vector<std::string> names;
  for (const auto& [path, leaf] : tree.leaves()) names.push_back(path);
  return names;
}

TEST(StateDictTest, HasDottedNamesOfModulesBelow) {
  const ModuleList net(Linear(2, 3), ModuleList(Linear(LinearOptions(3, 1).bias(false))));
  const TensorDict state = state_dict(net);
  EXPECT_EQ(names_of(state), (std::vector<std::string>{"0.weight", "0.bias", "1.0.weight"}));
  EXPECT_TRUE(state.at("0.bias").equal(net->named_parameters()["0.bias"]));
}

TEST(StateDictTest, GivesCopiesThatRequireNoGrad) {
  Linear net(2, 2);
  const Tensor before = net->weight.detach().clone();
  const TensorDict state = state_dict(net);
  EXPECT_FALSE(state.at("weight").requires_grad());
  state.at("weight").zero_();
  EXPECT_TRUE(net->weight.equal(before));
}

TEST(StateDictTest, HasBuffersWithTheirTypes) {
  BatchNorm1d norm(2);
  norm->forward(torch::rand({4, 2}));
  const TensorDict state = state_dict(norm);
  EXPECT_EQ(state.at("num_batches_tracked").scalar_type(), torch::kLong);
  EXPECT_EQ(state.at("num_batches_tracked").item<int64_t>(), 1);
  EXPECT_TRUE(state.at("running_mean").equal(norm->running_mean));
}

TEST(StateDictTest, LeavesOutNamesThatHoldNothing) {
  const BatchNorm1d norm(BatchNormOptions(2).affine(false));
  ASSERT_EQ(norm->named_parameters(/*recurse=*/false).size(), 0);
  EXPECT_EQ(names_of(state_dict(norm)),
            (std::vector<std::string>{"running_mean", "running_var", "num_batches_tracked"}));
}

TEST(StateDictTest, GoesByWhatTheModuleSaves) {
  PackedImpl module;
  const TensorDict state = state_dict(module);
  EXPECT_EQ(names_of(state), std::vector<std::string>{"packed.half"});
  EXPECT_TRUE(state.at("packed.half").equal(torch::full({2}, 0.5)));
}

TEST(StateDictTest, OfAModuleWithoutTensorsIsEmpty) { EXPECT_EQ(state_dict(torch::nn::ReLU()).size(), 0); }

}  // namespace
}  // namespace graft
