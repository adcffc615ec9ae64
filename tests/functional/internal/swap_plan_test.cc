// Plans through what they answer: which names there are, what each stands for, and whether the plan still holds.
#include "functional/internal/swap_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "functional/slots.h"
#include "tests/testing/throws_with.h"

namespace {

/// Registers what it is told to, and can take it back.
struct GrowingImpl : torch::nn::Module {
  GrowingImpl() {
    for (int i = 0; i < 2; ++i) grow();
    shift = register_buffer("shift", torch::zeros({2}));
    fc = register_module("fc", torch::nn::Linear(2, 2));
  }
  void grow() { list.push_back(register_parameter("p" + std::to_string(list.size()), torch::ones({2}))); }
  using torch::nn::Module::unregister_module;
  std::vector<torch::Tensor> list;
  torch::Tensor shift;
  torch::nn::Linear fc = nullptr;
};

/// Two classes whose objects take the same place, one after the other.
alignas(std::max_align_t) unsigned char g_place[1024];
struct PlacedImpl : torch::nn::Module {
  PlacedImpl() { w = register_parameter("w", torch::ones({2})); }
  static void* operator new(std::size_t) { return g_place; }
  static void operator delete(void*) {}
  torch::Tensor w;
};
struct PlacedKnownImpl : PlacedImpl {};
static_assert(sizeof(PlacedKnownImpl) <= sizeof(g_place));

/// An element and a named member that hold one tensor.
struct TiedElementImpl : torch::nn::Module {
  TiedElementImpl() {
    w = register_parameter("w", torch::ones({2}));
    list.push_back(register_parameter("p0", w));
  }
  torch::Tensor w;
  std::vector<torch::Tensor> list;
};

/// A class without annotation.
struct UnknownImpl : torch::nn::Module {
  UnknownImpl() { w = register_parameter("w", torch::ones({2})); }
  torch::Tensor w;
};

}  // namespace

GRAFT_SLOTS(GrowingImpl, list, shift)
GRAFT_SLOTS(PlacedKnownImpl, w)
GRAFT_SLOTS(TiedElementImpl, list, w)

namespace graft::internal {
namespace {

using testing::ThrowsWith;
using torch::Tensor;
using torch::nn::Linear;
using Names = std::vector<std::string>;

Names names_of(const SwapPlan& plan) {
  Names names;
  for (std::size_t i = 0; i < plan.names().size(); ++i) names.push_back(plan.names().path(i));
  return names;
}

const Slot& slot_named(const SwapPlan& plan, std::string_view name) {
  return plan.slots()[plan.slot_of_name()[plan.names().find(name).value()]];
}

std::vector<const Tensor*> members_of(const SwapPlan& plan, std::string_view name) {
  std::vector<const Tensor*> members;
  for (const Member& member : plan.members(slot_named(plan, name))) members.push_back(member.handle);
  return members;
}

std::shared_ptr<const KeyTable> table_of(const Names& names) {
  auto table = std::make_shared<KeyTable>();
  for (const std::string& name : names) table->insert(name);
  return table;
}

// --- Names and slots

TEST(SwapPlanTest, NamesEveryEntryEmptyOnesIncluded) {
  GrowingImpl module;
  EXPECT_EQ(names_of(SwapPlan(module)), (Names{"p0", "p1", "shift", "fc.weight", "fc.bias"}));
  Linear without_bias(torch::nn::LinearOptions(2, 2).bias(false));
  EXPECT_EQ(names_of(SwapPlan(*without_bias)), (Names{"weight", "bias"}));
}

TEST(SwapPlanTest, FindsTheEntryAndTheMembersOfEachName) {
  GrowingImpl module;
  const SwapPlan plan(module);
  EXPECT_EQ(slot_named(plan, "p1").entry, &parameter_registry(module)["p1"]);
  EXPECT_EQ(slot_named(plan, "shift").entry, &buffer_registry(module)["shift"]);
  EXPECT_FALSE(slot_named(plan, "p1").is_buffer);
  EXPECT_TRUE(slot_named(plan, "shift").is_buffer);
  EXPECT_EQ(members_of(plan, "p1"), std::vector<const Tensor*>{&module.list[1]});
  EXPECT_EQ(members_of(plan, "shift"), std::vector<const Tensor*>{&module.shift});
  EXPECT_EQ(members_of(plan, "fc.weight"), std::vector<const Tensor*>{&module.fc->weight});
  EXPECT_TRUE(plan.is_one_to_one());
  EXPECT_FALSE(plan.holds_ties());
}

TEST(SwapPlanTest, FindsTheMembersOfTwoEntriesThatHoldOneTensor) {
  TiedElementImpl module;
  const SwapPlan plan(module);
  EXPECT_EQ(members_of(plan, "w"), std::vector<const Tensor*>{&module.w});
  EXPECT_EQ(members_of(plan, "p0"), std::vector<const Tensor*>{&module.list[0]});
}

TEST(SwapPlanTest, FindsTheMemberOfAnEmptyEntry) {
  Linear without_bias(torch::nn::LinearOptions(2, 2).bias(false));
  EXPECT_EQ(members_of(SwapPlan(*without_bias), "bias"), std::vector<const Tensor*>{&without_bias->bias});
}

TEST(SwapPlanTest, GivesASharedModuleOneSlotAndTwoNames) {
  const Linear fc(2, 2);
  torch::nn::Sequential net(fc, fc);
  const SwapPlan plan(*net);
  EXPECT_EQ(names_of(plan), (Names{"0.weight", "0.bias", "1.weight", "1.bias"}));
  EXPECT_EQ(plan.slots().size(), 2);
  EXPECT_EQ(&slot_named(plan, "0.weight"), &slot_named(plan, "1.weight"));
  EXPECT_FALSE(plan.is_one_to_one());
  EXPECT_FALSE(plan.holds_ties());
}

TEST(SwapPlanTest, SeesTiedEntries) {
  UnknownImpl module;
  module.register_parameter("again", module.w);
  const SwapPlan plan(module);
  EXPECT_TRUE(plan.holds_ties());
  EXPECT_TRUE(plan.is_one_to_one());
}

TEST(SwapPlanTest, RefusesAModuleThatContainsItself) {
  const auto outer = std::make_shared<UnknownImpl>(), inner = std::make_shared<UnknownImpl>();
  outer->register_module("inner", inner);
  inner->register_module("outer", outer);
  EXPECT_THAT([&] { SwapPlan plan(*outer); }, ThrowsWith<c10::ValueError>("\"inner.outer\"", "contains itself"));
  child_registry(*inner).erase("outer");
}

// --- Reach

TEST(SwapPlanTest, ReachesAnEntryThroughItsMembers) {
  GrowingImpl module;
  const SwapPlan plan(module);
  for (const Slot& slot : plan.slots()) EXPECT_EQ(slot.reach, Reach::kMembers);
}

TEST(SwapPlanTest, ReachesAParameterListThroughItsRegistry) {
  torch::nn::ParameterList list(torch::ones({2}));
  EXPECT_EQ(slot_named(SwapPlan(*list), "0").reach, Reach::kRegistry);
}

TEST(SwapPlanTest, DoesNotReachAnEntryOfAnUnknownClass) {
  UnknownImpl module;
  EXPECT_EQ(slot_named(SwapPlan(module), "w").reach, Reach::kUnknown);
}

TEST(SwapPlanTest, SeesAMemberThatHoldsAnUnregisteredTensor) {
  Linear fc(2, 2);
  fc->weight = torch::ones({2, 2});
  const SwapPlan plan(*fc);
  EXPECT_EQ(slot_named(plan, "weight").reach, Reach::kDetached);
  EXPECT_EQ(slot_named(plan, "bias").reach, Reach::kMembers);
}

TEST(SwapPlanTest, GivesAMemberTiedByAssignmentToTheEntryItHolds) {
  Linear first(2, 2), second(2, 2);
  second->weight = first->weight;
  torch::nn::Sequential net(first, second);
  const SwapPlan plan(*net);
  EXPECT_EQ(members_of(plan, "0.weight"), (std::vector<const Tensor*>{&first->weight, &second->weight}));
  EXPECT_EQ(members_of(plan, "1.weight"), std::vector<const Tensor*>{});
  EXPECT_EQ(slot_named(plan, "1.weight").reach, Reach::kRegistry);
}

// --- Validity

/// Destroys the module in `g_place` and makes one of another class there that keeps its array of parameters.
template <typename Pointer>
void replace_in_place(Pointer& module) {
  TensorRegistry parameters = std::move(parameter_registry(*module));
  module.reset();
  auto* known = new PlacedKnownImpl;
  known->w = parameters["w"];
  parameter_registry(*known) = std::move(parameters);
  module.reset(known);
}

/// Changes a module and says whether its plan notices.
bool notices(const std::function<void(GrowingImpl&)>& change) {
  GrowingImpl module;
  const SwapPlan plan(module);
  EXPECT_TRUE(plan.is_valid(module));
  change(module);
  return !plan.is_valid(module);
}

TEST(SwapPlanValidityTest, EndsWhenSomethingIsRegistered) {
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.register_parameter("extra", torch::ones({1})); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.register_buffer("extra", torch::ones({1})); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.register_module("extra", Linear(2, 2)); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.fc->register_parameter("extra", torch::ones({1})); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.fc->register_module("extra", Linear(2, 2)); }));
}

TEST(SwapPlanValidityTest, EndsWhenSomethingIsUnregistered) {
  EXPECT_TRUE(notices([](GrowingImpl& m) { parameter_registry(m).erase("p1"); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { parameter_registry(m).erase("p0"); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { buffer_registry(m).erase("shift"); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.unregister_module("fc"); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { parameter_registry(*m.fc).clear(); }));
}

TEST(SwapPlanValidityTest, EndsWhenSubModulesExchangeTheirNames) {
  EXPECT_TRUE(notices([](torch::nn::Module& m) {
    auto& children = child_registry(m);
    const auto fc = children["fc"];
    children.erase("fc");
    children.insert("renamed", fc);
  }));
}

TEST(SwapPlanValidityTest, EndsWhenASubModuleIsReplaced) {
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.fc = m.replace_module("fc", Linear(2, 2)); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { child_registry(m)["fc"] = nullptr; }));
}

TEST(SwapPlanValidityTest, EndsWhenASubModuleOfAnotherClassTakesItsPlace) {
  torch::nn::Module root;
  root.register_module("child", std::shared_ptr<torch::nn::Module>(new PlacedImpl));
  const SwapPlan plan(root);
  replace_in_place(child_registry(root)["child"]);
  EXPECT_FALSE(plan.is_valid(root));
}

TEST(SwapPlanValidityTest, EndsWhenANameChanges) {
  EXPECT_TRUE(notices([](GrowingImpl& m) {
    // The new name takes the place of the old one, in the same array.
    const Tensor last = m.list[1];
    parameter_registry(m).erase("p1");
    m.register_parameter("other", last);
  }));
}

TEST(SwapPlanValidityTest, EndsWhenAVectorMemberGrowsShrinksOrMoves) {
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.list.emplace_back(); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) { m.list.pop_back(); }));
  EXPECT_TRUE(notices([](GrowingImpl& m) {
    auto moved = m.list;
    m.list.swap(moved);
  }));
}

TEST(SwapPlanValidityTest, LastsWhileOnlyTensorsChange) {
  EXPECT_FALSE(notices([](GrowingImpl& m) {
    m.fc->weight = parameter_registry(*m.fc)["weight"] = torch::ones({2, 2});
  }));
  EXPECT_FALSE(notices([](GrowingImpl& m) { m.to(torch::kDouble); }));
  EXPECT_FALSE(notices([](GrowingImpl& m) { m.eval(); }));
}

TEST(SwapPlanValidityTest, DoesNotHoldForAnotherModule) {
  GrowingImpl module, other;
  EXPECT_FALSE(SwapPlan(module).is_valid(other));
}

// --- Remembered plans

TEST(SwapPlanForTest, RemembersAPlanWhileItIsValid) {
  GrowingImpl module, other;
  const auto plan = plan_for(module);
  EXPECT_EQ(plan_for(module), plan);
  EXPECT_NE(plan_for(other), plan);
  EXPECT_EQ(plan_for(module), plan);
  module.grow();
  const auto grown = plan_for(module);
  EXPECT_NE(grown, plan);
  EXPECT_EQ(names_of(*grown), (Names{"p0", "p1", "p2", "shift", "fc.weight", "fc.bias"}));
  EXPECT_EQ(members_of(*grown, "p0"), std::vector<const Tensor*>{&module.list[0]});
  EXPECT_EQ(plan_for(module), grown);
}

TEST(SwapPlanForTest, MakesANewPlanForAnotherModuleAtTheSameAddress) {
  alignas(GrowingImpl) unsigned char memory[sizeof(GrowingImpl)];
  auto* first = new (memory) GrowingImpl;
  plan_for(*first);
  first->~GrowingImpl();
  auto* second = new (memory) GrowingImpl;
  const auto plan = plan_for(*second);
  EXPECT_EQ(slot_named(*plan, "p0").entry, &parameter_registry(*second)["p0"]);
  EXPECT_EQ(members_of(*plan, "fc.weight"), std::vector<const Tensor*>{&second->fc->weight});
  second->~GrowingImpl();
}

TEST(SwapPlanForTest, MakesANewPlanForAnotherClassAtTheSameAddress) {
  auto module = std::make_unique<PlacedImpl>();
  EXPECT_EQ(slot_named(*plan_for(*module), "w").reach, Reach::kUnknown);
  replace_in_place(module);
  EXPECT_EQ(slot_named(*plan_for(*module), "w").reach, Reach::kMembers);
}

TEST(SwapPlanForTest, MakesANewPlanWhenAMemberIsAssigned) {
  Linear tied(2, 2);
  EXPECT_EQ(members_of(*plan_for(*tied), "weight"), std::vector<const Tensor*>{&tied->weight});
  const Tensor own = tied->weight;
  tied->weight = torch::ones({2, 2});
  EXPECT_EQ(slot_named(*plan_for(*tied), "weight").reach, Reach::kDetached);
  tied->weight = own;
  EXPECT_EQ(slot_named(*plan_for(*tied), "weight").reach, Reach::kMembers);
}

TEST(SwapPlanForTest, MakesANewPlanWhenAMemberIsTiedOrUntied) {
  torch::nn::Sequential layers(Linear(2, 2), Linear(2, 2));
  Linear first(std::dynamic_pointer_cast<torch::nn::LinearImpl>(layers->ptr(0)));
  Linear second(std::dynamic_pointer_cast<torch::nn::LinearImpl>(layers->ptr(1)));
  EXPECT_EQ(members_of(*plan_for(*layers), "0.weight"), std::vector<const Tensor*>{&first->weight});
  const Tensor own = second->weight;
  second->weight = first->weight;
  EXPECT_EQ(members_of(*plan_for(*layers), "0.weight"), (std::vector<const Tensor*>{&first->weight, &second->weight}));
  second->weight = own;
  EXPECT_EQ(members_of(*plan_for(*layers), "0.weight"), std::vector<const Tensor*>{&first->weight});
}

TEST(SwapPlanForTest, MakesANewPlanWhenAnEntryComesToHoldWhatOnlyAMemberHeld) {
  torch::nn::Sequential layers(Linear(2, 2), Linear(2, 2));
  Linear first(std::dynamic_pointer_cast<torch::nn::LinearImpl>(layers->ptr(0)));
  Linear second(std::dynamic_pointer_cast<torch::nn::LinearImpl>(layers->ptr(1)));
  second->weight = torch::ones({2, 2});
  EXPECT_EQ(slot_named(*plan_for(*layers), "1.weight").reach, Reach::kDetached);
  parameter_registry(*first)["weight"] = first->weight = second->weight;
  EXPECT_EQ(members_of(*plan_for(*layers), "0.weight"), (std::vector<const Tensor*>{&first->weight, &second->weight}));
}

TEST(SwapPlanForTest, ForgetsNewerPlansOfTheSameModules) {
  GrowingImpl module, other;
  const auto before = plan_for(module);
  const uint64_t number = newest_plan();
  const auto of_a_part = plan_for(*module.fc);
  const auto of_another = plan_for(other);
  forget_plans_since(number, *before);
  EXPECT_EQ(plan_for(module), before);
  EXPECT_NE(plan_for(*module.fc), of_a_part);
  EXPECT_EQ(plan_for(other), of_another);
}

TEST(SwapPlanForTest, ServesMoreModulesThanItRemembers) {
  std::vector<std::unique_ptr<GrowingImpl>> modules;
  for (int i = 0; i < 200; ++i) modules.push_back(std::make_unique<GrowingImpl>());
  for (const auto& module : modules) EXPECT_TRUE(plan_for(*module)->is_valid(*module));
  for (const auto& module : modules) EXPECT_TRUE(plan_for(*module)->is_valid(*module));
}

// --- Keys of trees

TEST(SwapPlanKeysTest, StandForSlotsInTheOrderOfTheTree) {
  GrowingImpl module;
  SwapPlan plan(module);
  const auto slots = plan.slots_for(table_of({"fc.bias", "p0"}), "test")->indices;
  ASSERT_EQ(slots.size(), 2);
  EXPECT_EQ(plan.slots()[slots[0]].entry, &parameter_registry(*module.fc)["bias"]);
  EXPECT_EQ(plan.slots()[slots[1]].entry, &parameter_registry(module)["p0"]);
}

TEST(SwapPlanKeysTest, KeepTheirMeaningWhenManyTablesAreUsed) {
  GrowingImpl module;
  SwapPlan plan(module);
  std::vector<std::shared_ptr<const KeyTable>> tables;
  for (const std::string& name : names_of(plan)) tables.push_back(table_of({name}));
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < tables.size(); ++i) {
      EXPECT_EQ(plan.slots_for(tables[i], "test")->indices, std::vector<uint32_t>{plan.slot_of_name()[i]});
    }
  }
}

TEST(SwapPlanKeysTest, AreOneTableForOneChoiceOfNames) {
  GrowingImpl module;
  SwapPlan plan(module);
  const auto keys = plan.keys_for({0, 3});
  EXPECT_EQ(keys->path(0), "p0");
  EXPECT_EQ(keys->path(1), "fc.weight");
  EXPECT_EQ(plan.keys_for({0, 3}), keys);
  EXPECT_NE(plan.keys_for({0, 4}), keys);
  EXPECT_EQ(plan.slots_for(keys, "test")->indices,
            (std::vector<uint32_t>{plan.slot_of_name()[0], plan.slot_of_name()[3]}));
  EXPECT_EQ(plan.keys_for({})->size(), 0);
}

TEST(SwapPlanKeysTest, ListsEveryUnknownKeyWithWhatThereIs) {
  GrowingImpl module;
  SwapPlan plan(module);
  EXPECT_THAT(
      [&] {
        plan.slots_for(table_of({"p0", "q", "fc.weigth", "nowhere.at.all"}), "some_call");
      },
      ThrowsWith<c10::IndexError>("some_call: 3 leaves do not fit module", "\"q\"", "(it has: p0, p1, shift, fc)",
                                  "\"fc.weigth\"", "(\"fc\" has: weight, bias)", "\"nowhere.at.all\"",
                                  "The module is unchanged"));
  EXPECT_THAT([&] { plan.slots_for(table_of({"fc"}), "some_call"); },
              ThrowsWith<c10::IndexError>("1 leaf does not fit", "\"fc\"", "it is a sub-module"));
}

TEST(SwapPlanKeysTest, SaysThatAModuleHasNothing) {
  torch::nn::ReLU relu;
  SwapPlan plan(*relu);
  EXPECT_THAT([&] { plan.slots_for(table_of({"w"}), "some_call"); }, ThrowsWith<c10::IndexError>("(it has: nothing)"));
}

}  // namespace
}  // namespace graft::internal
