#include "functional/internal/module_registry.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

namespace graft::internal {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_parameter("w", torch::ones({2}));
    register_parameter("absent", torch::Tensor(), /*requires_grad=*/false);
    register_buffer("shift", torch::zeros({2}));
    register_module("fc", torch::nn::Linear(2, 2));
  }
};

TEST(ModuleRegistryTest, ShowsWhatIsRegisteredIncludingEmptyEntries) {
  NetImpl net;
  EXPECT_EQ(parameter_registry(net).keys(), (std::vector<std::string>{"w", "absent"}));
  EXPECT_EQ(buffer_registry(net).keys(), std::vector<std::string>{"shift"});
  EXPECT_EQ(child_registry(net).keys(), std::vector<std::string>{"fc"});
  EXPECT_TRUE(parameter_registry(net)["w"].is_same(net.named_parameters()["w"]));
  EXPECT_FALSE(parameter_registry(net)["absent"].defined());
  EXPECT_TRUE(buffer_registry(net)["shift"].is_same(net.named_buffers()["shift"]));
  EXPECT_EQ(child_registry(net)["fc"], net.children().front());
}

TEST(ModuleRegistryTest, LetsTheModulesOwnEntriesBeSet) {
  NetImpl net;
  const torch::Tensor parameter = torch::zeros({2}), buffer = torch::ones({2});
  const auto child = std::make_shared<torch::nn::ReLUImpl>();
  parameter_registry(net)["w"] = parameter;
  buffer_registry(net)["shift"] = buffer;
  child_registry(net)["fc"] = child;
  EXPECT_TRUE(net.named_parameters()["w"].is_same(parameter));
  EXPECT_TRUE(net.named_buffers()["shift"].is_same(buffer));
  EXPECT_EQ(net.children().front(), child);
}

}  // namespace
}  // namespace graft::internal
