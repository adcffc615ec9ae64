// The slot table against the reference counts of tensors: a handle that it lacks would keep an old tensor after a swap.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/internal/swap_plan.h"
#include "functional/slots.h"
#include "tests/testing/torch_modules.h"

namespace {

/// Keeps its weights in a vector, as nn::LSTM does, of which the slot table is not told.
struct VectorHolder : torch::nn::Module {
  VectorHolder() {
    weights.push_back(register_parameter("first", torch::ones({2})));
    weights.push_back(register_parameter("second", torch::ones({2})));
  }
  std::vector<torch::Tensor> weights;
};

/// Like VectorHolder, but the slot table is told.
struct KnownVectorHolder : VectorHolder {};

/// Keeps its weight where no table can reach it.
struct ClosureHolder : torch::nn::Module {
  ClosureHolder() {
    scale = [weight = register_buffer("weight", torch::ones({2}))](const torch::Tensor& x) { return x * weight; };
  }
  std::function<torch::Tensor(const torch::Tensor&)> scale;
};

}  // namespace

GRAFT_SLOTS(KnownVectorHolder, weights)

namespace graft::internal {
namespace {

using testing::torch_modules;
using testing::TorchModule;

/// Counts the handles of registered tensors that are neither in a registry nor shown by the slot table. Every handle
/// counts as a reference, wherever it is.
std::size_t count_unknown_handles(const std::shared_ptr<torch::nn::Module>& root) {
  std::set<const at::TensorImpl*> registered;
  std::size_t held = 0, known = 0;
  for (const auto& module : root->modules()) {
    for (const auto* registry : {&parameter_registry(*module), &buffer_registry(*module)}) {
      for (const auto& item : *registry) {
        if (!item.value().defined()) continue;
        ++known;
        if (registered.insert(item.value().unsafeGetTensorImpl()).second) held += item.value().use_count();
      }
    }
  }
  for (const auto& module : root->modules()) {
    slots_of(*module).visit(*module, [&](std::string_view, at::Tensor& handle) {
      if (registered.contains(handle.unsafeGetTensorImpl())) ++known;
    });
  }
  return held - known;
}

TEST(TorchSlotsTest, LacksNoHandleOfAModule) {
  for (const TorchModule& entry : torch_modules()) EXPECT_EQ(count_unknown_handles(entry.make()), 0u) << entry;
}

TEST(TorchSlotsTest, ReachesEveryTensorOfAModule) {
  for (const TorchModule& entry : torch_modules()) {
    const auto module = entry.make();
    const SwapPlan plan(*module);
    for (const Slot& slot : plan.slots()) {
      if (!slot.entry->defined()) continue;
      EXPECT_TRUE(slot.reach == Reach::kMembers || slot.reach == Reach::kRegistry)
          << entry << " " << plan.entry_name(slot) << " of " << plan.modules()[slot.module].type->name();
    }
  }
}

// The count sees what it is for.
TEST(TorchSlotsTest, FindsHandlesThatTheTableLacks) {
  EXPECT_EQ(count_unknown_handles(std::make_shared<VectorHolder>()), 2u);
  EXPECT_EQ(count_unknown_handles(std::make_shared<ClosureHolder>()), 1u);
  EXPECT_EQ(count_unknown_handles(std::make_shared<KnownVectorHolder>()), 0u);
}

}  // namespace
}  // namespace graft::internal
