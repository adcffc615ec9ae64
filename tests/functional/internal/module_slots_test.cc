#include "functional/internal/module_slots.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <string>
#include <vector>

namespace graft::internal {
namespace {

using torch::Tensor;
using Names = std::vector<std::string>;

struct BaseImpl : torch::nn::Module {
  Tensor base;
};
struct DerivedImpl : BaseImpl {
  Tensor own;
};
struct FurtherDerivedImpl : DerivedImpl {};
struct UnknownImpl : torch::nn::Module {
  Tensor w;
};
struct ListImpl : torch::nn::Module {};
struct MovableImpl : BaseImpl {
  std::vector<Tensor> list{2};
};

template <typename Type>
void* cast_to(torch::nn::Module& module) {
  return dynamic_cast<Type*>(&module);
}

const bool kRegistered = [] {
  register_class_slots({.cast = &cast_to<BaseImpl>, .visit = [](void* object, HandleVisitor visitor) {
                          visitor("base", static_cast<BaseImpl*>(object)->base);
                        }});
  register_class_slots({.cast = &cast_to<DerivedImpl>, .visit = [](void* object, HandleVisitor visitor) {
                          visitor("own", static_cast<DerivedImpl*>(object)->own);
                        }});
  register_class_slots({.cast = &cast_to<ListImpl>, .visit = [](void*, HandleVisitor) {}, .registry_only = true});
  register_class_slots(
      {.cast = &cast_to<MovableImpl>,
       .visit = [](void* object,
                   HandleVisitor visitor) { visit_member("list", static_cast<MovableImpl*>(object)->list, visitor); },
       .movable = true});
  return true;
}();

Names names_in(torch::nn::Module& module) {
  Names names;
  slots_of(module).visit(module, [&](std::string_view name, Tensor&) { names.emplace_back(name); });
  return names;
}

TEST(ModuleSlotsTest, JoinTheEntriesOfTheClassAndOfItsBases) {
  ASSERT_TRUE(kRegistered);
  BaseImpl base;
  DerivedImpl derived;
  FurtherDerivedImpl further;
  EXPECT_EQ(names_in(base), Names{"base"});
  EXPECT_EQ(names_in(derived), (Names{"base", "own"}));
  EXPECT_EQ(names_in(further), (Names{"base", "own"}));
}

TEST(ModuleSlotsTest, ShowTheHandlesOfTheObjectItself) {
  DerivedImpl module;
  torch::nn::Module& as_module = module;
  std::vector<const Tensor*> handles;
  slots_of(as_module).visit(as_module, [&](std::string_view, Tensor& handle) { handles.push_back(&handle); });
  EXPECT_EQ(handles, (std::vector<const Tensor*>{&module.base, &module.own}));
}

TEST(ModuleSlotsTest, AreEmptyForAnUnknownClass) {
  UnknownImpl module;
  EXPECT_TRUE(names_in(module).empty());
  EXPECT_FALSE(slots_of(module).movable());
  EXPECT_FALSE(slots_of(module).registry_only());
}

TEST(ModuleSlotsTest, AreOneObjectForAClass) {
  DerivedImpl one, other;
  BaseImpl base;
  EXPECT_EQ(&slots_of(one), &slots_of(other));
  EXPECT_NE(&slots_of(one), &slots_of(base));
}

TEST(ModuleSlotsTest, TakeTheFlagsOfAnyEntry) {
  ListImpl list;
  EXPECT_TRUE(slots_of(list).registry_only());
  EXPECT_FALSE(slots_of(list).movable());
  MovableImpl movable;  // its base has an entry that is not movable
  EXPECT_TRUE(slots_of(movable).movable());
  EXPECT_FALSE(slots_of(movable).registry_only());
}

TEST(ModuleSlotsTest, FollowTheSizeOfAMember) {
  MovableImpl module;
  EXPECT_EQ(names_in(module), (Names{"base", "list", "list"}));
  module.list.resize(1);
  EXPECT_EQ(names_in(module), (Names{"base", "list"}));
}

TEST(ModuleSlotsTest, SplitAListOfNames) {
  EXPECT_EQ(nth_name("w", 0), "w");
  EXPECT_EQ(nth_name("w_, layers_,shift", 0), "w_");
  EXPECT_EQ(nth_name("w_, layers_,shift", 1), "layers_");
  EXPECT_EQ(nth_name("w_, layers_,shift", 2), "shift");
}

}  // namespace
}  // namespace graft::internal
