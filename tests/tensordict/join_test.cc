#include "tensordict/join.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tensordict/indexing.h"
#include "tests/testing/batch_trees.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using at::Tensor;
using at::indexing::Slice;
using testing::expect_elementwise;
using testing::TensorDictEq;
using testing::ThrowsWith;
using testing::trees_of_batch;
using Sizes = std::vector<int64_t>;
using Tensors = std::vector<Tensor>;

TensorDict member(double value) {
  return TensorDict({{"a", at::full({2, 3}, value)}, {"b.c", at::full({2}, value)}}, {2});
}

/// Returns the tree with other values of the same dtypes.
TensorDict plus(const TensorDict& tree, int64_t number) {
  return tree.map([&](const Tensor& value) { return value + number; });
}

// --- stack and cat

TEST(JoinTest, StackDoesToBatchDimsWhatLibTorchDoesToTensors) {
  for (const auto& [what, tree] : trees_of_batch({2, 3})) {
    SCOPED_TRACE(what);
    for (const int64_t dim : {0, 1, 2, -1, -2, -3}) {
      const TensorDict got = stack({tree, plus(tree, 1), plus(tree, 2)}, dim);
      expect_elementwise(got, tree, [&](const Tensor& t) { return at::stack({t, t + 1, t + 2}, dim); });
    }
    expect_elementwise(stack({tree}), tree, [](const Tensor& t) { return t.unsqueeze(0); });
  }
}

TEST(JoinTest, CatDoesToBatchDimsWhatLibTorchDoesToTensors) {
  for (const auto& [what, tree] : trees_of_batch({2, 3})) {
    SCOPED_TRACE(what);
    for (const int64_t dim : {0, 1, -1, -2}) {
      const TensorDict shorter = split(tree, {1, tree.batch_size()[dim < 0 ? dim + 2 : dim] - 1}, dim).front();
      const TensorDict got = cat({tree, plus(shorter, 1), tree}, dim);
      expect_elementwise(got, tree, [&](const Tensor& t) { return at::cat({t, t.narrow(dim, 0, 1) + 1, t}, dim); });
    }
  }
}

TEST(JoinTest, MembersAreAlignedByPath) {
  const TensorDict other_order({{"b.c", at::full({2}, 2.0)}, {"a", at::full({2, 3}, 2.0)}}, {2});
  EXPECT_THAT(stack({member(1), other_order, member(3)}), TensorDictEq(stack({member(1), member(2), member(3)})));
  EXPECT_EQ(stack({other_order, member(3)}).keys()->path(0), "b.c");
  EXPECT_THAT(cat({member(1), other_order}), TensorDictEq(cat({member(1), member(2)})));
}

TEST(JoinTest, JoinedTreesShareTheKeysOfTheFirstAndAreNotLocked) {
  TensorDict first = member(1);
  first.lock_();
  EXPECT_EQ(stack({first, member(2)}).keys(), first.keys());
  EXPECT_FALSE(stack({first, first}).is_locked());
  EXPECT_FALSE(cat({first, first}).is_locked());
}

TEST(JoinTest, GradientsFlowToMembers) {
  const TensorDict a({{"x", at::zeros({2}).requires_grad_()}}, {2});
  const TensorDict b({{"x", at::zeros({2}).requires_grad_()}}, {2});
  (stack({a, b})["x"].sum() + 2 * cat({a, b})["x"].sum()).backward();
  EXPECT_TRUE(at::equal(a["x"].grad(), at::full({2}, 3.0)));
  EXPECT_TRUE(at::equal(b["x"].grad(), at::full({2}, 3.0)));
}

TEST(JoinTest, DimStaysWithinTheBatchDims) {
  EXPECT_THAT([] { stack({member(1)}, 2); }, ThrowsWith<c10::IndexError>("stack(dim=2)", "-2 <= dim < 2"));
  EXPECT_THAT([] { stack({member(1)}, -3); }, ThrowsWith<c10::IndexError>("stack(dim=-3)"));
  EXPECT_THAT([] { cat({member(1)}, 1); }, ThrowsWith<c10::IndexError>("cat(dim=1)", "-1 <= dim < 1"));
  EXPECT_THAT([] { unbind(member(1), 1); }, ThrowsWith<c10::IndexError>("unbind(dim=1)"));
  EXPECT_THAT([] { split(member(1), 1, 1); }, ThrowsWith<c10::IndexError>("split(dim=1)"));
  EXPECT_THAT([] { split(member(1), {1, 2}, 1); }, ThrowsWith<c10::IndexError>("split(dim=1)"));
  EXPECT_THAT([] { chunk(member(1), 1, 1); }, ThrowsWith<c10::IndexError>("chunk(dim=1)"));
  EXPECT_THAT([] { tensor_split(member(1), 1, 1); }, ThrowsWith<c10::IndexError>("tensor_split(dim=1)"));
  EXPECT_THAT([] { tensor_split(member(1), {1}, 1); }, ThrowsWith<c10::IndexError>("tensor_split(dim=1)"));
  const TensorDict no_batch({{"a", at::zeros({2})}});
  EXPECT_THAT([&] { unbind(no_batch); }, ThrowsWith<c10::IndexError>("unbind(dim=0)", "no batch dims"));
  EXPECT_THAT([&] { cat({no_batch}); }, ThrowsWith<c10::IndexError>("cat(dim=0)", "no batch dims"));
  EXPECT_EQ(stack({no_batch, no_batch}).batch_size(), Sizes{2});
}

TEST(JoinTest, StackListsWhatIsWrongInEveryMember) {
  const TensorDict other_shape({{"a", at::zeros({2, 4})}, {"b.c", at::zeros({2}, at::kDouble)}}, {2});
  const TensorDict other_keys({{"a", at::zeros({2, 3})}, {"d", at::zeros({2})}}, {2});
  EXPECT_THAT(
      [&] {
        stack({member(1), other_shape, other_keys});
      },
      ThrowsWith<c10::ValueError>("member 1", "\"a\": shape [2, 4], expected [2, 3]", "\"b.c\": dtype double",
                                  "member 2", "\"b.c\": missing", "\"d\": unexpected"));
  EXPECT_THAT(
      [&] {
        stack({TensorDict({{"x", at::zeros({2})}}), TensorDict({{"x.q", at::zeros({2})}})});
      },
      ThrowsWith<c10::ValueError>("\"x\": missing", "\"x.q\": unexpected"));
  EXPECT_THAT([] { stack({}); }, ThrowsWith<c10::ValueError>("stack: no trees"));
}

TEST(JoinTest, CatListsWhatIsWrongButForTheDim) {
  const TensorDict first({{"a", at::zeros({2, 3, 4})}}, {2, 3});
  const TensorDict other({{"a", at::zeros({5, 2, 4})}}, {5, 2});
  EXPECT_THAT(
      [&] {
        cat({first, other}, 0);
      },
      ThrowsWith<c10::ValueError>("cat", "member 1", "batch size [5, 2], expected [2, 3]", "\"a\": shape [5, 2, 4]"));
  EXPECT_THAT(
      [&] {
        cat({first, TensorDict({{"a", at::zeros({2, 3, 4})}}, {2})});
      },
      ThrowsWith<c10::ValueError>("batch size [2], expected [2, 3]"));
  EXPECT_THAT([] { cat({}); }, ThrowsWith<c10::ValueError>("cat: no trees"));
}

TEST(JoinTest, PartsHaveToHaveTheSameBatchDims) {
  const TensorDict plain({{"n.b", at::zeros({2, 3})}, {"m.c", at::zeros({2, 3})}}, {2});
  TensorDict deeper = plain;
  deeper.set("n", TensorDict({{"b", at::zeros({2, 3})}}, {2, 3}));
  const auto plain_first = ThrowsWith<c10::ValueError>("member 1", "part \"n\": batch size [2, 3], expected [2]");
  EXPECT_THAT(([&] { stack({plain, deeper}); }), plain_first);
  EXPECT_THAT(([&] { cat({plain, deeper}); }), plain_first);
  EXPECT_THAT(([&] {
                stack({deeper, plain});
              }),
              ThrowsWith<c10::ValueError>("part \"n\": batch size [2], expected [2, 3]"));
}

// --- Taking apart

struct Case {
  std::string name;
  std::function<std::vector<TensorDict>(const TensorDict&)> on_tree;
  std::function<Tensors(const Tensor&)> on_tensor;
};

void expect_all(const Sizes& batch_size, const std::vector<Case>& cases) {
  for (const auto& [what, tree] : trees_of_batch(batch_size)) {
    for (const Case& each : cases) {
      SCOPED_TRACE(each.name + " of a tree with " + what);
      const std::vector<TensorDict> parts = each.on_tree(tree);
      ASSERT_EQ(parts.size(), each.on_tensor(at::zeros(batch_size)).size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        expect_elementwise(parts[i], tree, [&](const Tensor& t) { return each.on_tensor(t)[i]; });
      }
    }
  }
}

std::vector<Case> cases() {
  using Tree = const TensorDict&;
  using Batch = const Tensor&;
  const Sizes one_and_four = {1, 4};
  return {
      {"unbind", [](Tree t) { return unbind(t); }, [](Batch t) { return t.unbind(); }},
      {"unbind the last", [](Tree t) { return unbind(t, -1); }, [](Batch t) { return t.unbind(-1); }},
      {"split", [](Tree t) { return split(t, 2, 1); }, [](Batch t) { return t.split(2, 1); }},
      {"split by more", [](Tree t) { return split(t, 9); }, [](Batch t) { return t.split(9); }},
      {"sizes",
       [](Tree t) {
         return split(t, {0, 3, 2}, -1);
       },
       [](Batch t) {
         return t.split({0, 3, 2}, -1);
       }},
      {"sizes in a vector", [=](Tree t) { return split(t, one_and_four, 1); },
       [](Batch t) {
         return t.split({1, 4}, 1);
       }},
      {"one size", [](Tree t) { return split(t, {5}, 1); }, [](Batch t) { return Tensors{t}; }},
      {"chunk", [](Tree t) { return chunk(t, 2, 1); }, [](Batch t) { return t.chunk(2, 1); }},
      {"chunk in too many", [](Tree t) { return chunk(t, 4, -1); }, [](Batch t) { return t.chunk(4, -1); }},
      {"sections", [](Tree t) { return tensor_split(t, 3, 1); }, [](Batch t) { return t.tensor_split(3, 1); }},
      {"many sections", [](Tree t) { return tensor_split(t, 7, -1); }, [](Batch t) { return t.tensor_split(7, -1); }},
      {"indices",
       [](Tree t) {
         return tensor_split(t, {1, -1, 9}, 1);
       },
       [](Batch t) {
         return t.tensor_split({1, -1, 9}, 1);
       }},
      {"indices that go back",
       [](Tree t) {
         return tensor_split(t, {3, 1}, 1);
       },
       [](Batch t) {
         return t.tensor_split({3, 1}, 1);
       }},
      {"one index", [](Tree t) { return tensor_split(t, {2}, 1); },
       [](Batch t) {
         return Tensors{t.narrow(1, 0, 2), t.narrow(1, 2, 3)};
       }},
      {"indices in a vector", [=](Tree t) { return tensor_split(t, one_and_four, 1); },
       [](Batch t) {
         return t.split({1, 3, 1}, 1);
       }},
  };
}

TEST(JoinTest, TakingApartDoesToBatchDimsWhatLibTorchDoesToATensor) { expect_all({2, 5}, cases()); }

TEST(JoinTest, DimsOfSizeZeroAreTakenApartToo) {
  using Tree = const TensorDict&;
  using Batch = const Tensor&;
  expect_all({0, 5}, cases());
  expect_all({0}, {{"unbind", [](Tree t) { return unbind(t); }, [](Batch t) { return t.unbind(); }},
                   {"split", [](Tree t) { return split(t, 2); }, [](Batch t) { return t.split(2); }},
                   {"no sizes", [](Tree t) { return split(t, Sizes{}); }, [](Batch) { return Tensors{}; }},
                   {"chunk", [](Tree t) { return chunk(t, 2); }, [](Batch t) { return t.chunk(2); }}});
}

TEST(JoinTest, PartsAreViewsAndTheirLocksFollowTheTreeExceptThoseOfUnbind) {
  TensorDict tree = trees_of_batch({2, 5}).front().second;
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    for (const bool is_locked : {false, true}) {
      is_locked ? tree.lock_() : tree.unlock_();
      for (const TensorDict& part : each.on_tree(tree)) {
        EXPECT_TRUE(part["a"].is_alias_of(tree["a"]));
        EXPECT_EQ(part.is_locked(), is_locked && !each.name.starts_with("unbind"));
        EXPECT_EQ(part.keys(), tree.keys());
      }
    }
  }
}

TEST(JoinTest, UnbindUndoesStackAndSplitUndoesCat) {
  for (const int64_t dim : {0, 1, -1, -2}) {
    EXPECT_THAT(unbind(stack({member(1), member(2), member(3)}, dim), dim)[1], TensorDictEq(member(2)));
  }
  const TensorDict head = index(member(1), {Slice(0, 1)});
  const std::vector<TensorDict> parts = split(cat({head, member(2)}, -1), {1, 2}, -1);
  EXPECT_THAT(parts[0], TensorDictEq(head));
  EXPECT_THAT(parts[1], TensorDictEq(member(2)));
}

TEST(JoinTest, SizesOfPartsHaveToFit) {
  using E = c10::ValueError;
  EXPECT_THAT([] { split(member(1), 0); }, ThrowsWith<E>("split(size=0)", "positive"));
  EXPECT_THAT([] { split(member(1), -2); }, ThrowsWith<E>("split(size=-2)"));
  EXPECT_THAT([] { split(member(1), {1, 2}); }, ThrowsWith<E>("split: sizes [1, 2] sum to 3, expected 2", "dim 0"));
  EXPECT_THAT([] { split(member(1), {1}); }, ThrowsWith<E>("split: sizes [1] sum to 1, expected 2"));
  EXPECT_THAT([] { split(member(1), {3, -1}); }, ThrowsWith<E>("split: sizes [3, -1]", "none below 0"));
  EXPECT_THAT([] { split(member(1), Sizes{}); }, ThrowsWith<E>("sum to 0"));
  EXPECT_THAT([] { chunk(member(1), 0); }, ThrowsWith<E>("chunk(chunks=0)"));
  EXPECT_THAT([] { tensor_split(member(1), 0); }, ThrowsWith<E>("tensor_split(sections=0)"));
}

}  // namespace
}  // namespace graft
