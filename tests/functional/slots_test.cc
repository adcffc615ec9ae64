// GRAFT_SLOTS: the handles that a class shows after its line, by name and by address.
#include "functional/slots.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using torch::Tensor;
using Handles = std::vector<std::pair<std::string, const Tensor*>>;

// Each class says itself what it holds, as it alone may name its members.

class AccessImpl : public torch::nn::Module {
 public:
  Handles expected() const { return {{"open", &open}, {"half_open_", &half_open_}, {"closed_", &closed_}}; }
  Tensor open;

 protected:
  Tensor half_open_;

 private:
  Tensor closed_;
  Tensor unlisted_;
};

class ContainersImpl : public torch::nn::Module {
 public:
  Handles expected() const {
    return {
        {"list_", &list_[0]}, {"list_", &list_[1]}, {"pair_", &pair_[0]}, {"pair_", &pair_[1]}, {"given_", &*given_}};
  }

 private:
  std::vector<Tensor> list_{2};
  std::array<Tensor, 2> pair_;
  std::optional<Tensor> given_ = Tensor(), absent_;
};

class BaseImpl : public torch::nn::Module {
 public:
  Handles expected() const { return {{"base_", &base_}}; }

 private:
  Tensor base_;
};

class DerivedImpl : public BaseImpl {
 public:
  Handles expected() const {
    Handles handles = BaseImpl::expected();
    handles.emplace_back("own_", &own_);
    return handles;
  }

 private:
  Tensor own_;
};

struct UnlistedDerivedImpl : BaseImpl {
  Tensor extra;
};

class TwiceImpl : public torch::nn::Module {
 public:
  Handles expected() const { return {{"first_", &first_}, {"second_", &second_}}; }

 private:
  Tensor first_, second_;
};

template <typename Value>
class TemplateImpl : public torch::nn::Module {
 public:
  Handles expected() const { return {{"w_", &w_}}; }

 private:
  Tensor w_;
  Value value_{};
};

struct ArrayOnlyImpl : torch::nn::Module {
  std::array<Tensor, 2> pair;
};

struct VectorOnlyImpl : torch::nn::Module {
  std::vector<Tensor> list;
};

struct OptionalOnlyImpl : torch::nn::Module {
  std::optional<Tensor> maybe;
};

struct ManyImpl : torch::nn::Module {
  Tensor m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19;
};

}  // namespace

namespace outer::inner {

class NestedImpl : public torch::nn::Module {
 public:
  Handles expected() const { return {{"w_", &w_}}; }

 private:
  Tensor w_;
};

}  // namespace outer::inner

GRAFT_SLOTS(AccessImpl, open, half_open_, closed_)
GRAFT_SLOTS(ContainersImpl, list_, pair_, given_, absent_)
GRAFT_SLOTS(BaseImpl, base_)
GRAFT_SLOTS(DerivedImpl, own_)
GRAFT_SLOTS(TwiceImpl, first_)
GRAFT_SLOTS(TwiceImpl, second_)
GRAFT_SLOTS(TemplateImpl<int>, w_)
GRAFT_SLOTS(TemplateImpl<double>, w_)
GRAFT_SLOTS(outer::inner::NestedImpl, w_)
GRAFT_SLOTS(ArrayOnlyImpl, pair)
GRAFT_SLOTS(VectorOnlyImpl, list)
GRAFT_SLOTS(OptionalOnlyImpl, maybe)
GRAFT_SLOTS(ManyImpl, m0, m1, m2, m3, m4, m5, m6, m7, m8, m9, m10, m11, m12, m13, m14, m15, m16, m17, m18, m19)

namespace graft::internal {
namespace {

Handles handles_of(torch::nn::Module& module) {
  Handles handles;
  slots_of(module).visit(module, [&](std::string_view name, Tensor& handle) { handles.emplace_back(name, &handle); });
  return handles;
}

TEST(SlotsTest, ShowPublicProtectedAndPrivateMembersInOrder) {
  AccessImpl module;
  EXPECT_EQ(handles_of(module), module.expected());
}

TEST(SlotsTest, ShowEveryElementOfAVectorAnArrayAndAnOptional) {
  ContainersImpl module;
  EXPECT_EQ(handles_of(module), module.expected());
}

TEST(SlotsTest, ShowTheMembersOfABaseAndOfTheClassItself) {
  BaseImpl base;
  DerivedImpl derived;
  UnlistedDerivedImpl unlisted;
  EXPECT_EQ(handles_of(base), base.expected());
  EXPECT_EQ(handles_of(derived), derived.expected());
  EXPECT_EQ(handles_of(unlisted), unlisted.expected());
}

TEST(SlotsTest, AddUpOverTheLinesOfOneClass) {
  TwiceImpl module;
  EXPECT_EQ(handles_of(module), module.expected());
}

TEST(SlotsTest, TakeClassesInNamespacesAndInstancesOfTemplates) {
  outer::inner::NestedImpl nested;
  TemplateImpl<int> with_int;
  TemplateImpl<double> with_double;
  TemplateImpl<float> unlisted;
  EXPECT_EQ(handles_of(nested), nested.expected());
  EXPECT_EQ(handles_of(with_int), with_int.expected());
  EXPECT_EQ(handles_of(with_double), with_double.expected());
  EXPECT_TRUE(handles_of(unlisted).empty());
}

TEST(SlotsTest, SayWhichMembersCanMove) {
  BaseImpl plain;
  ArrayOnlyImpl array;
  VectorOnlyImpl vector;
  OptionalOnlyImpl optional;
  EXPECT_FALSE(slots_of(plain).movable());
  EXPECT_FALSE(slots_of(array).movable());
  EXPECT_TRUE(slots_of(vector).movable());
  EXPECT_TRUE(slots_of(optional).movable());
}

TEST(SlotsTest, TakeManyMembers) {
  ManyImpl module;
  const Handles handles = handles_of(module);
  ASSERT_EQ(handles.size(), 20);
  EXPECT_EQ(handles.front(), std::pair(std::string("m0"), static_cast<const Tensor*>(&module.m0)));
  EXPECT_EQ(handles.back(), std::pair(std::string("m19"), static_cast<const Tensor*>(&module.m19)));
}

}  // namespace
}  // namespace graft::internal
