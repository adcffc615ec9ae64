#include "tensordict/shape.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/batch_trees.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using at::Tensor;
using testing::BatchFunction;
using testing::expect_elementwise;
using testing::ThrowsWith;
using testing::trees_of_batch;
using Sizes = std::vector<int64_t>;

/// A function on trees, and what it means for a tensor of the batch size.
struct Case {
  std::string name;
  std::function<TensorDict(const TensorDict&)> on_tree;
  BatchFunction on_tensor;
};

void expect_all(const Sizes& batch_size, const std::vector<Case>& cases) {
  for (const auto& [what, tree] : trees_of_batch(batch_size)) {
    for (const Case& each : cases) {
      SCOPED_TRACE(each.name + " of a tree with " + what);
      expect_elementwise(each.on_tree(tree), tree, each.on_tensor);
    }
  }
}

std::vector<Case> cases() {
  using Tree = const TensorDict&;
  using Batch = const Tensor&;
  return {
      {"view", [](Tree t) { return view(t, {6}); }, [](Batch t) { return t.view({6}); }},
      {"view with -1",
       [](Tree t) {
         return view(t, {3, -1, 1});
       },
       [](Batch t) {
         return t.view({3, -1, 1});
       }},
      {"reshape", [](Tree t) { return reshape(t, {-1}); }, [](Batch t) { return t.reshape({-1}); }},
      {"reshape what cannot be viewed", [](Tree t) { return reshape(transpose(t, 0, 1), {6}); },
       [](Batch t) { return t.transpose(0, 1).reshape({6}); }},
      {"flatten", [](Tree t) { return flatten(t); }, [](Batch t) { return t.flatten(); }},
      {"flatten one dim", [](Tree t) { return flatten(t, -1, 1); }, [](Batch t) { return t.flatten(1, 1); }},
      {"unflatten",
       [](Tree t) {
         return unflatten(t, -1, {-1, 1});
       },
       [](Batch t) {
         return t.unflatten(-1, {-1, 1});
       }},
      {"squeeze of nothing", [](Tree t) { return squeeze(t); }, [](Batch t) { return t.squeeze(); }},
      {"squeeze", [](Tree t) { return squeeze(unsqueeze(unsqueeze(t, 0), 2)); }, [](Batch t) { return t.squeeze(); }},
      {"squeeze a dim", [](Tree t) { return squeeze(unsqueeze(t, 1), -2); }, [](Batch t) { return t; }},
      {"squeeze a dim that stays", [](Tree t) { return squeeze(t, 0); }, [](Batch t) { return t.squeeze(0); }},
      {"unsqueeze", [](Tree t) { return unsqueeze(t, 1); }, [](Batch t) { return t.unsqueeze(1); }},
      {"unsqueeze at the end", [](Tree t) { return unsqueeze(t, -1); }, [](Batch t) { return t.unsqueeze(-1); }},
      {"unsqueeze in front", [](Tree t) { return unsqueeze(t, -3); }, [](Batch t) { return t.unsqueeze(-3); }},
      {"permute",
       [](Tree t) {
         return permute(t, {1, 0});
       },
       [](Batch t) {
         return t.permute({1, 0});
       }},
      {"permute by negative dims",
       [](Tree t) {
         return permute(t, {-1, -2});
       },
       [](Batch t) {
         return t.permute({-1, -2});
       }},
      {"transpose", [](Tree t) { return transpose(t, 0, -1); }, [](Batch t) { return t.transpose(0, -1); }},
      {"swapaxes", [](Tree t) { return swapaxes(t, 1, 0); }, [](Batch t) { return t.swapaxes(1, 0); }},
      {"movedim", [](Tree t) { return movedim(t, 0, -1); }, [](Batch t) { return t.movedim(0, -1); }},
      {"movedim of two",
       [](Tree t) {
         return movedim(t, {0, 1}, {1, 0});
       },
       [](Batch t) {
         return t.movedim({0, 1}, {1, 0});
       }},
      {"expand",
       [](Tree t) {
         return expand(t, {4, 2, 3});
       },
       [](Batch t) {
         return t.expand({4, 2, 3});
       }},
      {"expand a 1",
       [](Tree t) {
         return expand(unsqueeze(t, 1), {5, -1, 7, -1});
       },
       [](Batch t) {
         return t.unsqueeze(1).expand({5, -1, 7, -1});
       }},
      {"expand_as",
       [](Tree t) {
         return expand_as(t, TensorDict(Sizes{4, 2, 3}));
       },
       [](Batch t) {
         return t.expand({4, 2, 3});
       }},
      {"repeat",
       [](Tree t) {
         return repeat(t, {2, 3});
       },
       [](Batch t) {
         return t.repeat({2, 3});
       }},
      {"repeat by 0",
       [](Tree t) {
         return repeat(t, {2, 0});
       },
       [](Batch t) {
         return t.repeat({2, 0});
       }},
      {"tile by fewer", [](Tree t) { return tile(t, 2); }, [](Batch t) { return t.tile(2); }},
      {"tile by more",
       [](Tree t) {
         return tile(t, {2, 1, 2});
       },
       [](Batch t) {
         return t.tile({2, 1, 2});
       }},
      {"repeat_interleave", [](Tree t) { return repeat_interleave(t, 2, -1); },
       [](Batch t) { return t.repeat_interleave(2, -1); }},
      {"repeat_interleave of all", [](Tree t) { return repeat_interleave(t, 2); },
       [](Batch t) { return t.repeat_interleave(2); }},
      {"repeat_interleave by a tensor", [](Tree t) { return repeat_interleave(t, at::arange(2), 0); },
       [](Batch t) { return t.repeat_interleave(at::arange(2), 0); }},
      {"repeat_interleave of all by a tensor", [](Tree t) { return repeat_interleave(t, at::arange(6)); },
       [](Batch t) { return t.repeat_interleave(at::arange(6)); }},
      {"flip", [](Tree t) { return flip(t, 0); }, [](Batch t) { return t.flip(0); }},
      {"flip of two",
       [](Tree t) {
         return flip(t, {0, -1});
       },
       [](Batch t) {
         return t.flip({0, 1});
       }},
      {"roll", [](Tree t) { return roll(t, 1, -1); }, [](Batch t) { return t.roll(1, -1); }},
      {"roll of two",
       [](Tree t) {
         return roll(t, {1, -2}, {0, 1});
       },
       [](Batch t) {
         return t.roll({1, -2}, {0, 1});
       }},
      {"roll of all", [](Tree t) { return roll(t, 4); }, [](Batch t) { return t.roll(4); }},
      {"rot90", [](Tree t) { return rot90(t); }, [](Batch t) { return t.rot90(); }},
      {"rot90 back",
       [](Tree t) {
         return rot90(t, -1, {-1, 0});
       },
       [](Batch t) {
         return t.rot90(-1, {-1, 0});
       }},
      {"rot90 twice", [](Tree t) { return rot90(t, 2); }, [](Batch t) { return t.rot90(2); }},
      {"atleast_1d", [](Tree t) { return atleast_1d(t); }, [](Batch t) { return t; }},
      {"atleast_3d", [](Tree t) { return atleast_3d(t); }, [](Batch t) { return t.unsqueeze(0); }},
      {"pad",
       [](Tree t) {
         return pad(t, {1, 0, 0, 2}, 7);
       },
       [](Batch t) {
         return at::constant_pad_nd(t, {0, 2, 1, 0}, 7);
       }},
      {"pad the first dim",
       [](Tree t) {
         return pad(t, {0, 2});
       },
       [](Batch t) {
         return at::constant_pad_nd(t, {0, 0, 0, 2});
       }},
      {"crop",
       [](Tree t) {
         return pad(t, {-1, 0, 1, -2}, 7);
       },
       [](Batch t) {
         return at::constant_pad_nd(t, {1, -2, -1, 0}, 7);
       }},
  };
}

TEST(ShapeTest, EachFunctionDoesToBatchDimsWhatLibTorchDoesToATensor) { expect_all({2, 3}, cases()); }

TEST(ShapeTest, BatchDimsOfSizeZeroAreRearrangedToo) {
  using Tree = const TensorDict&;
  using Batch = const Tensor&;
  expect_all({0, 3}, {{"view",
                       [](Tree t) {
                         return view(t, {3, 0});
                       },
                       [](Batch t) {
                         return t.view({3, 0});
                       }},
                      {"flatten", [](Tree t) { return flatten(t); }, [](Batch t) { return t.flatten(); }},
                      {"infer",
                       [](Tree t) {
                         return reshape(t, {-1, 3});
                       },
                       [](Batch t) {
                         return t.reshape({-1, 3});
                       }},
                      {"permute",
                       [](Tree t) {
                         return permute(t, {1, 0});
                       },
                       [](Batch t) {
                         return t.permute({1, 0});
                       }},
                      {"expand",
                       [](Tree t) {
                         return expand(t, {2, 0, 3});
                       },
                       [](Batch t) {
                         return t.expand({2, 0, 3});
                       }},
                      {"repeat",
                       [](Tree t) {
                         return repeat(t, {2, 1});
                       },
                       [](Batch t) {
                         return t.repeat({2, 1});
                       }},
                      {"flip", [](Tree t) { return flip(t, {0}); }, [](Batch t) { return t.flip({0}); }},
                      {"roll", [](Tree t) { return roll(t, {1}); }, [](Batch t) { return t.roll({1}); }},
                      {"pad",
                       [](Tree t) {
                         return pad(t, {1, 0});
                       },
                       [](Batch t) {
                         return at::constant_pad_nd(t, {0, 0, 1, 0});
                       }}});
}

TEST(ShapeTest, ATreeWithoutBatchDimsGetsSome) {
  using Tree = const TensorDict&;
  using Batch = const Tensor&;
  expect_all({}, {{"view",
                   [](Tree t) {
                     return view(t, {1, 1});
                   },
                   [](Batch t) {
                     return t.view({1, 1});
                   }},
                  {"flatten", [](Tree t) { return flatten(t); }, [](Batch t) { return t.flatten(); }},
                  {"expand", [](Tree t) { return expand(t, {3}); }, [](Batch t) { return t.expand({3}); }},
                  {"permute", [](Tree t) { return permute(t, {}); }, [](Batch t) { return t; }},
                  {"squeeze", [](Tree t) { return squeeze(t); }, [](Batch t) { return t; }},
                  {"tile", [](Tree t) { return tile(t, {2}); }, [](Batch t) { return t.tile({2}); }},
                  {"roll", [](Tree t) { return roll(t, 1); }, [](Batch t) { return t; }},
                  {"repeat_interleave", [](Tree t) { return repeat_interleave(t, 2); },
                   [](Batch t) { return t.repeat_interleave(2); }},
                  {"atleast_1d", [](Tree t) { return atleast_1d(t); }, [](Batch t) { return t.view({1}); }},
                  {"atleast_2d", [](Tree t) { return atleast_2d(t); },
                   [](Batch t) {
                     return t.view({1, 1});
                   }},
                  {"atleast_3d", [](Tree t) { return atleast_3d(t); },
                   [](Batch t) {
                     return t.view({1, 1, 1});
                   }}});
}

TEST(ShapeTest, LocksPassOnExceptToCopiesByPad) {
  TensorDict locked = trees_of_batch({2, 3}).front().second;
  locked.lock_();
  for (const Case& each : cases()) {
    const bool is_copy = each.name.starts_with("pad") || each.name == "crop";
    EXPECT_EQ(each.on_tree(locked).is_locked(), !is_copy) << each.name;
  }
}

TEST(ShapeTest, ViewsShareMemory) {
  const TensorDict tree({{"a", at::zeros({2, 3, 5})}}, {2, 3});
  const Tensor& leaf = tree["a"];
  for (const TensorDict& result :
       {view(tree, {6}), reshape(tree, {6}), flatten(tree), unflatten(tree, 0, {2, 1}), unsqueeze(tree, 1),
        squeeze(unsqueeze(tree, 1)), permute(tree, {1, 0}), transpose(tree, 0, 1), movedim(tree, 0, 1),
        expand(tree, {4, 2, 3}), atleast_3d(tree)}) {
    EXPECT_EQ(result["a"].data_ptr(), leaf.data_ptr());
  }
  EXPECT_NE(repeat(tree, {1, 1})["a"].data_ptr(), leaf.data_ptr());
  EXPECT_NE(pad(tree, {})["a"].data_ptr(), leaf.data_ptr());
}

TEST(ShapeTest, GradientsFlowThrough) {
  const TensorDict tree({{"a", at::zeros({2, 3}).requires_grad_()}}, {2});
  at::Tensor loss = pad(repeat(unsqueeze(tree, 0), {2, 1}), {1, 0}, 5)["a"].sum();
  loss.backward();
  EXPECT_TRUE(at::equal(tree["a"].grad(), at::full({2, 3}, 2.0)));
}

// --- What is refused

const TensorDict kTree = TensorDict({{"a", at::zeros({2, 3, 4})}, {"b.c", at::zeros({2, 3})}}, {2, 3});

TEST(ShapeTest, ViewNamesTheLeavesThatStridesKeepFromIt) {
  const TensorDict strided(
      {{"a", at::zeros({3, 2, 4}).transpose(0, 1)}, {"b.c", at::zeros({2, 3})}, {"d", at::zeros({3, 2}).t()}}, {2, 3});
  EXPECT_THAT([&] { view(strided, {6}); },
              ThrowsWith<c10::ValueError>("view", "\"a\", of shape [2, 3, 4]", "stride", "\"d\"", "reshape"));
  EXPECT_EQ(reshape(strided, {6})["a"].sizes(), (Sizes{6, 4}));
}

TEST(ShapeTest, SizesHaveToFit) {
  using E = c10::ValueError;
  EXPECT_THAT([] { view(kTree, {5}); }, ThrowsWith<E>("view: sizes [5]", "[2, 3]", "6 elements"));
  EXPECT_THAT([] { view(kTree, {4, -1}); }, ThrowsWith<E>("no size for -1"));
  EXPECT_THAT([] { view(kTree, {-1, -1}); }, ThrowsWith<E>("at most one may be -1"));
  EXPECT_THAT([] { reshape(kTree, {-2, -3}); }, ThrowsWith<E>("reshape", "the others are sizes"));
  EXPECT_THAT([] { reshape(kTree, {2, 3, 4}); }, ThrowsWith<E>("reshape: sizes [2, 3, 4]"));
  EXPECT_THAT([] { view(TensorDict(Sizes{0, 3}), {0, -1}); }, ThrowsWith<E>("no size for -1"));
  EXPECT_THAT([] { flatten(kTree, 1, 0); }, ThrowsWith<E>("start_dim 1 comes after end_dim 0"));
  EXPECT_THAT([] { unflatten(kTree, 1, {2, 2}); }, ThrowsWith<E>("unflatten: sizes [2, 2]", "[3]"));
  EXPECT_THAT([] { unflatten(kTree, 1, {}); }, ThrowsWith<E>("no sizes"));
  EXPECT_THAT([] { expand(kTree, {3}); }, ThrowsWith<E>("expand: the batch size [2, 3]", "[3]"));
  EXPECT_THAT([] { expand(kTree, {4, 3}); }, ThrowsWith<E>("does not expand to [4, 3]"));
  EXPECT_THAT([] { expand(kTree, {-1, 2, 3}); }, ThrowsWith<E>("does not expand to [-1, 2, 3]"));
  EXPECT_THAT([] { expand_as(kTree, TensorDict()); }, ThrowsWith<E>("expand"));
  EXPECT_THAT([] { repeat(kTree, {2}); }, ThrowsWith<E>("repeat: repeats [2]", "2 batch dims"));
  EXPECT_THAT([] { repeat(kTree, {2, -1}); }, ThrowsWith<E>("repeat: repeats [2, -1]"));
  EXPECT_THAT([] { tile(kTree, {-1}); }, ThrowsWith<E>("tile: repeats [-1]"));
  EXPECT_THAT([] { repeat_interleave(kTree, -1, 0); }, ThrowsWith<E>("repeat_interleave: repeats [-1]"));
  EXPECT_THAT([] { repeat_interleave(kTree, at::arange(3), 0); }, ThrowsWith<E>("shape [3], expected [2]"));
  EXPECT_THAT([] { pad(kTree, {1}); }, ThrowsWith<E>("pad: 1 numbers [1]", "2 batch dims"));
  EXPECT_THAT([] { pad(kTree, {0, 0, 0, 0, 1, 1}); }, ThrowsWith<E>("pad: 6 numbers"));
  EXPECT_THAT([] { pad(kTree, {-1, -2}); }, ThrowsWith<E>("pad: [-1, -2] leaves [-1, 3]"));
  EXPECT_THAT([] { roll(kTree, {1, 2}); }, ThrowsWith<E>("roll: shifts [1, 2]"));
  EXPECT_THAT([] { roll(kTree, {1, 2}, {0}); }, ThrowsWith<E>("2 shifts [1, 2] for the 1 dims [0]"));
}

TEST(ShapeTest, DimsHaveToBeBatchDimsGivenOnce) {
  using E = c10::IndexError;
  EXPECT_THAT([] { flatten(kTree, 0, 2); }, ThrowsWith<E>("flatten(dim=2)", "-2 <= dim < 2"));
  EXPECT_THAT([] { unflatten(kTree, 2, {4, 1}); }, ThrowsWith<E>("unflatten(dim=2)"));
  EXPECT_THAT([] { squeeze(kTree, 2); }, ThrowsWith<E>("squeeze(dim=2)"));
  EXPECT_THAT([] { unsqueeze(kTree, 3); }, ThrowsWith<E>("unsqueeze(dim=3)", "-3 <= dim < 3"));
  EXPECT_THAT([] { permute(kTree, {0, 2}); }, ThrowsWith<E>("permute(dim=2)"));
  EXPECT_THAT([] { transpose(kTree, 0, 2); }, ThrowsWith<E>("transpose(dim=2)"));
  EXPECT_THAT([] { movedim(kTree, 0, 2); }, ThrowsWith<E>("movedim(dim=2)"));
  EXPECT_THAT([] { repeat_interleave(kTree, 2, 2); }, ThrowsWith<E>("repeat_interleave(dim=2)"));
  EXPECT_THAT([] { flip(kTree, 2); }, ThrowsWith<E>("flip(dim=2)"));
  EXPECT_THAT([] { roll(kTree, 1, 2); }, ThrowsWith<E>("roll(dim=2)"));
  EXPECT_THAT([] { rot90(kTree, 1, {0, 2}); }, ThrowsWith<E>("rot90(dim=2)"));
  EXPECT_THAT([] { squeeze(TensorDict(), 0); }, ThrowsWith<E>("squeeze(dim=0)", "there are no batch dims"));

  EXPECT_THAT(
      [] {
        permute(kTree, {0, -2});
      },
      ThrowsWith<c10::ValueError>("permute: dim -2 is given twice in [0, -2]"));
  EXPECT_THAT([] { permute(kTree, {1}); }, ThrowsWith<c10::ValueError>("permute: dims [1], expected all 2"));
  EXPECT_THAT([] { movedim(kTree, {0, 1}, {0}); }, ThrowsWith<c10::ValueError>("movedim: 2 dims"));
  EXPECT_THAT([] { movedim(kTree, {0, 0}, {0, 1}); }, ThrowsWith<c10::ValueError>("movedim", "twice"));
  EXPECT_THAT([] { flip(kTree, {0, 0}); }, ThrowsWith<c10::ValueError>("flip", "twice"));
  EXPECT_THAT([] { rot90(kTree, 1, {0, 0}); }, ThrowsWith<c10::ValueError>("rot90", "twice"));
  EXPECT_THAT([] { rot90(kTree, 1, {0}); }, ThrowsWith<c10::ValueError>("rot90: dims [0], expected two"));
}

}  // namespace
}  // namespace graft
