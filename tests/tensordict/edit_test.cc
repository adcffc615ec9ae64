#include "tensordict/edit.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensordict/shape.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

TensorDict example() {
  return TensorDict({{"a", at::arange(12).view({2, 1, 3, 2})}, {"part.b", at::arange(6.).view({2, 1, 3})}}, {2, 1, 3});
}

struct NamedForm {
  std::string name;
  Form form;
  Sizes batch_size;
};

std::vector<NamedForm> forms() {
  return {{"viewed", viewed({-1}), {6}},
          {"flattened", flattened(), {6}},
          {"flattened in part", flattened(1, 2), {2, 3}},
          {"unflattened", unflattened(2, {3, 1}), {2, 1, 3, 1}},
          {"squeezed", squeezed(1), {2, 3}},
          {"squeezed where it is no 1", squeezed(0), {2, 1, 3}},
          {"unsqueezed", unsqueezed(-1), {2, 1, 3, 1}},
          {"permuted", permuted({2, 0, -2}), {3, 2, 1}},
          {"transposed", transposed(0, -1), {3, 1, 2}}};
}

TEST(EditTest, WhatIsSetAndErasedInAFormIsSoInTheTree) {
  for (const auto& [name, form, batch_size] : forms()) {
    SCOPED_TRACE(name);
    TensorDict tree = example();
    const at::Tensor a = tree["a"];
    edit(tree, form, [&, &batch_size = batch_size](TensorDict& edited) {
      EXPECT_EQ(edited.batch_size(), batch_size);
      edited.set("c", edited["a"] * 2);
      edited.erase("part");
    });
    EXPECT_THAT(tree, TensorDictEq(TensorDict({{"a", a}, {"c", example()["a"] * 2}}, {2, 1, 3})));
    EXPECT_TRUE(tree["a"].is_same(a));  // no view of it
  }
}

TEST(EditTest, WhatIsWrittenIntoAFormIsInTheTree) {
  for (const auto& [name, form, batch_size] : forms()) {
    SCOPED_TRACE(name);
    TensorDict tree = example();
    tree.lock_();
    edit(tree, form, [](TensorDict& edited) { at::Tensor(edited["part.b"]).mul_(-1); });
    EXPECT_TRUE(tree["part.b"].equal(-example()["part.b"]));
    EXPECT_TRUE(tree.is_locked());
  }
}

TEST(EditTest, AReplacedLeafIsReplacedAndTheOthersKeepTheirHandles) {
  TensorDict tree = example();
  const at::Tensor b = tree["part.b"];
  edit(tree, transposed(0, 2), [](TensorDict& edited) { edited.set("a", edited["a"] + 1); });
  EXPECT_TRUE(tree["a"].equal(example()["a"] + 1));
  EXPECT_TRUE(tree["part.b"].is_same(b));
}

TEST(EditTest, ABodyThatThrowsLeavesTheLeaves) {
  TensorDict tree = example();
  const TensorDict before = tree;
  EXPECT_THROW(edit(tree, flattened(),
                    [](TensorDict& edited) {
                      edited.erase("a");
                      throw 3;
                    }),
               int);
  EXPECT_TRUE(tree["a"].is_same(before["a"]));
  EXPECT_THAT([&] { edit(tree, flattened(), [](TensorDict& edited) { edited.set_batch_size(Sizes{}); }); },
              ThrowsWith<c10::ValueError>("reshape"));
  EXPECT_EQ(tree.batch_size(), (Sizes{2, 1, 3}));
}

TEST(EditTest, FormsOfALockedTreeAreLocked) {
  TensorDict tree = example();
  tree.lock_();
  for (const Form& form : {flattened(), with_flat_keys("/")}) {
    EXPECT_THAT([&] { edit(tree, form, [](TensorDict& edited) { edited.erase("a"); }); },
                ThrowsWith<c10::Error>("locked"));
    EXPECT_THAT([&] { edit(tree, form, [](TensorDict& edited) { edited.unlock_().erase("a"); }); },
                ThrowsWith<c10::Error>("edit: the tree is locked"));
  }
  EXPECT_TRUE(tree.contains("a"));
}

TEST(EditTest, StridesThatAllowNoViewAreAnError) {
  TensorDict tree({{"a", at::zeros({2, 3}).t()}}, {3, 2});
  EXPECT_THAT([&] { edit(tree, flattened(), [](TensorDict&) {}); }, ThrowsWith<c10::ValueError>("\"a\""));
}

TEST(EditTest, KeysAreJoinedAndPutBack) {
  TensorDict tree = example();
  tree.set("part", TensorDict({{"b", at::zeros({2, 1, 3, 4})}}, {2, 1, 3, 4}));
  edit(tree, with_flat_keys("/"), [](TensorDict& edited) {
    EXPECT_TRUE(edited.contains("part/b"));
    edited.set("part/c", at::ones({2, 1, 3, 4}));
    edited.set("d", at::ones({2, 1, 3}));
  });
  EXPECT_TRUE(tree["part.c"].equal(at::ones({2, 1, 3, 4})));
  EXPECT_TRUE(tree.contains("d"));
  EXPECT_EQ(tree.batch_size("part"), (Sizes{2, 1, 3, 4}));

  TensorDict flat({{"x/y", at::ones({2})}});
  const at::Tensor y = flat["x/y"];
  edit(flat, with_nested_keys("/"), [](TensorDict& edited) { edited.set("x.z", edited["x.y"] + 1); });
  EXPECT_TRUE(flat["x/y"].is_same(y));
  EXPECT_TRUE(flat["x/z"].equal(at::full({2}, 2.)));
}

TEST(EditTest, KeysThatWouldNotComeBackAreErrors) {
  TensorDict tree({{"x/y", at::ones({2})}, {"a.b", at::ones({2})}});
  EXPECT_THAT([&] { edit(tree, with_flat_keys("/"), [](TensorDict&) {}); },
              ThrowsWith<c10::ValueError>("with_flat_keys", "\"x/y\""));
  EXPECT_THAT([&] { edit(tree, with_nested_keys("/"), [](TensorDict&) {}); },
              ThrowsWith<c10::ValueError>("with_nested_keys", "\"a.b\""));
}

TEST(EditTest, AFormOfOnesOwnIsAPairOfFunctions) {
  TensorDict tree = example();
  const Form reversed{[](const TensorDict& t) { return flip(t, {0}); },
                      [](const TensorDict& edited, const TensorDict&) { return flip(edited, {0}); }};
  edit(tree, reversed, [](TensorDict& edited) { edited.set("first", edited["part.b"]); });
  EXPECT_TRUE(tree["first"].equal(tree["part.b"]));
  const Form loses_a_leaf{[](const TensorDict& t) { return t.subtree("part"); },
                          [](const TensorDict& edited, const TensorDict&) { return edited; }};
  EXPECT_THAT([&] { edit(tree, loses_a_leaf, [](TensorDict& edited) { edited.set("c", edited["b"]); }); },
              ThrowsWith<c10::ValueError>("edit: a form of 1 leaves for 3"));
}

TEST(EditTest, NamesThatEndLikeTheSeparatorAreErrorsToo) {
  TensorDict tree({{"a_.b", at::ones({2})}});
  EXPECT_THAT([&] { edit(tree, with_flat_keys("__"), [](TensorDict&) {}); },
              ThrowsWith<c10::ValueError>("with_flat_keys", "\"a_.b\": it would be \"a._b\""));
}

}  // namespace
}  // namespace graft
