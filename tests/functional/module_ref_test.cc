// A module is taken in whatever a program keeps it.
#include "functional/module_ref.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>

#include "functional/explain_swap.h"
#include "functional/functional_call.h"
#include "functional/module_state.h"
#include "functional/state_dict.h"
#include "functional/to_module.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using torch::nn::Linear;
using torch::nn::LinearImpl;

const torch::nn::Module* module_of(ModuleRef module) { return &module.get(); }

TEST(ModuleRefTest, TakesModulesHoldersAndPointers) {
  Linear holder(2, 3);
  const Linear const_holder = holder;
  const std::shared_ptr<LinearImpl> pointer = holder.ptr();
  const auto unique = std::make_unique<LinearImpl>(2, 3);
  const torch::nn::AnyModule any(pointer);
  const torch::nn::Module* const expected = pointer.get();
  EXPECT_EQ(module_of(*holder), expected);
  EXPECT_EQ(module_of(holder), expected);
  EXPECT_EQ(module_of(const_holder), expected);
  EXPECT_EQ(module_of(pointer), expected);
  EXPECT_EQ(module_of(pointer.get()), expected);
  EXPECT_EQ(module_of(std::shared_ptr<torch::nn::Module>(pointer)), expected);
  EXPECT_EQ(module_of(any), expected);
  EXPECT_EQ(module_of(unique), unique.get());
  static_assert(!std::is_convertible_v<const Linear*, ModuleRef>, "a pointer to a holder");
  static_assert(!std::is_convertible_v<std::shared_ptr<const LinearImpl>, ModuleRef>, "a module that must not change");
}

TEST(ModuleRefTest, IsWhatCallsTake) {
  Linear holder(2, 3);
  const TensorDict state = from_module(holder);
  const TensorDict zeros = state.map([](const at::Tensor& leaf) { return at::zeros_like(leaf); });
  {
    const ToModuleGuard guard(zeros, holder.ptr());
    EXPECT_TRUE(holder->weight.eq(0).all().item<bool>());
  }
  to_module(state, holder, {.strict = true});
  EXPECT_EQ(explain_swap(holder).size(), 2);
  EXPECT_EQ(state_dict(holder).size(), 2);
  EXPECT_TRUE(functional_call(holder.get(), zeros, torch::ones({1, 2})).eq(0).all().item<bool>());
}

TEST(ModuleRefTest, RefusesNothing) {
  const Linear empty = nullptr;
  const std::shared_ptr<LinearImpl> null;
  const auto refuses = ThrowsWith<c10::ValueError>("got a null pointer");
  EXPECT_THAT([&] { from_module(empty); }, ThrowsWith<c10::Error>("empty ModuleHolder"));
  EXPECT_THAT([&] { from_module(null); }, refuses);
  EXPECT_THAT([&] { functional_call(null, TensorDict(), torch::ones({1, 2})); }, refuses);
}

}  // namespace
}  // namespace graft
