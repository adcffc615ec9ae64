#include "tensordict/binary.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "tensordict/like.h"
#include "tensordict/pointwise.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;

/// A function of a tree and an operand, the same in place, and what LibTorch computes for one leaf and a tensor.
struct Function {
  std::string name;
  std::function<TensorDict(const TensorDict&, const Operand&)> of_tree;
  std::function<const TensorDict&(const TensorDict&, const Operand&)> in_place;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> of_leaf;
};

#define GRAFT_ROW(name)                                                                                      \
  {                                                                                                          \
#name, [](const TensorDict& t, const Operand& o) { return name(t, o); }, [](const TensorDict& t,         \
                                                                                const Operand& o) -> auto& { \
      return name##_(t, o);                                                                                  \
    }                                                                                                        \
    , [](const at::Tensor& a, const at::Tensor& b) { return at::name(a, b); }                                \
  }
// With an alpha.
#define GRAFT_SCALED_ROW(name)                                                                                    \
  {                                                                                                               \
#name, [](const TensorDict& t, const Operand& o) { return name(t, o, 0.3); }, [](const TensorDict& t,         \
                                                                                     const Operand& o) -> auto& { \
      return name##_(t, o, 0.3);                                                                                  \
    }                                                                                                             \
    , [](const at::Tensor& a, const at::Tensor& b) { return at::name(a, b, 0.3); }                                \
  }
const std::vector<Function> kFunctions{GRAFT_SCALED_ROW(add), GRAFT_SCALED_ROW(sub), GRAFT_ROW(pow),
                                       GRAFT_ROW(maximum),    GRAFT_ROW(minimum),    GRAFT_ROW(clamp_min),
                                       GRAFT_ROW(clamp_max),  GRAFT_ROW(remainder)};
#undef GRAFT_ROW
#undef GRAFT_SCALED_ROW

TensorDict example() {
  return TensorDict(
      {{"a", at::linspace(0.5, 3, 6, at::kDouble).view({2, 3})}, {"b", at::linspace(3.5, 4, 2, at::kDouble)}}, {2});
}

TensorDict by_leaves(const Function& f, const TensorDict& td, const at::Tensor& a, const at::Tensor& b) {
  return TensorDict({{"a", f.of_leaf(td["a"], a)}, {"b", f.of_leaf(td["b"], b)}}, {2});
}

TEST(BinaryTest, EveryFunctionTakesTreesTensorsAndNumbers) {
  const TensorDict td = example();
  const TensorDict other({{"b", at::tensor({1.7, 5.})}, {"a", at::full({2, 3}, 1.3, at::kDouble)}}, {2});
  const at::Tensor per_sample = at::tensor({1.3, 2.9}), number = at::scalar_tensor(1.3, at::kDouble);
  for (const Function& f : kFunctions) {
    const TensorDict with_tree = by_leaves(f, td, other["a"], other["b"]);
    EXPECT_THAT(f.of_tree(td, other), TensorDictNear(with_tree, 1e-12)) << f.name;
    const TensorDict with_tensor = by_leaves(f, td, per_sample.view({2, 1}), per_sample);
    EXPECT_THAT(f.of_tree(td, per_sample), TensorDictNear(with_tensor, 1e-12)) << f.name;
    const TensorDict with_number = by_leaves(f, td, number, number);
    EXPECT_THAT(f.of_tree(td, 1.3), TensorDictNear(with_number, 1e-12)) << f.name;

    const TensorDict first = example(), second = example(), third = example();
    EXPECT_EQ(&f.in_place(first, other), &first);
    EXPECT_THAT(first, TensorDictNear(with_tree, 1e-12)) << f.name;
    EXPECT_THAT(f.in_place(second, per_sample), TensorDictNear(with_tensor, 1e-12)) << f.name;
    EXPECT_THAT(f.in_place(third, 1.3), TensorDictNear(with_number, 1e-12)) << f.name;
  }
}

TEST(BinaryTest, EveryFunctionWorksInsideVmapAndGrad) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const auto row_with_itself = [&](const TensorDict& row) {
      return f.of_tree(f.of_tree(row, 1.3), TensorDict({{"a", row["a"] * 0.8}, {"b", row["b"] * 1.1}}));
    };
    const TensorDict expected =
        f.of_tree(f.of_tree(td, 1.3), TensorDict({{"a", td["a"] * 0.8}, {"b", td["b"] * 1.1}}, {2}));
    EXPECT_THAT(vmap(row_with_itself)(td), TensorDictNear(expected, 1e-12)) << f.name;

    const auto sum = [&](const TensorDict& at) { return f.of_tree(at, 1.3)["a"].sum(); };
    constexpr double kStep = 1e-6;
    const at::Tensor number = at::scalar_tensor(1.3, at::kDouble), a = td["a"];
    const at::Tensor slope = (f.of_leaf(a + kStep, number) - f.of_leaf(a - kStep, number)) / (2 * kStep);
    EXPECT_TRUE(grad(sum)(td)["a"].allclose(slope, 1e-6, 1e-8)) << f.name;
  }
}

TEST(BinaryTest, AlphaHasToBeOfTheKindOfTheResult) {
  const TensorDict counts({{"n", at::ones({2}, at::kLong)}, {"x", at::ones({2})}, {"m", at::ones({2}, at::kLong)}});
  EXPECT_THAT([&] { add(counts, counts, 0.5); },
              ThrowsWith<c10::ValueError>("add, with the factor 0.5", "\"n\": dtype Long", "\"m\""));
  EXPECT_THAT([&] { sub_(counts, counts, 0.5); }, ThrowsWith<c10::ValueError>("sub_: ", "\"n\"", "\"m\""));
  EXPECT_TRUE(counts["x"].equal(at::ones({2})));
  EXPECT_TRUE(add(counts, counts, 3)["n"].equal(at::full({2}, 4, at::kLong)));
  EXPECT_TRUE(
      add(counts, TensorDict({{"n", at::ones({2})}, {"x", at::ones({2})}, {"m", at::ones({2})}}), 0.5)["n"].equal(
          at::full({2}, 1.5)));
  const TensorDict flags({{"f", at::ones({2}, at::kBool)}});
  EXPECT_EQ(add(flags, flags)["f"].scalar_type(), at::kBool);
}

TEST(BinaryTest, ANumberIsRaisedToTheLeaves) {
  const TensorDict td = example();
  const TensorDict expected({{"a", at::pow(2, td["a"])}, {"b", at::pow(2, td["b"])}}, {2});
  EXPECT_THAT(pow(2, td), TensorDictNear(expected, 1e-12));
}

TEST(BinaryTest, ClampKeepsLeavesBetweenBothEnds) {
  const TensorDict td = example();
  const TensorDict expected({{"a", td["a"].clamp(1, 2)}, {"b", td["b"].clamp(1, 2)}}, {2});
  EXPECT_THAT(clamp(td, 1, 2), TensorDictEq(expected));
  EXPECT_THAT(clamp(td, full_like(td, 1), at::full({2}, 2., at::kDouble)), TensorDictEq(expected));
  EXPECT_THAT(clamp(td, 3, 2), TensorDictEq(TensorDict({{"a", td["a"].clamp(3, 2)}, {"b", td["b"].clamp(3, 2)}}, {2})));
  EXPECT_THAT(clamp_(td, 1, 2), TensorDictEq(expected));
}

TEST(BinaryTest, ClampInPlaceChecksBothEndsFirst) {
  const TensorDict td = example();
  EXPECT_THAT(
      [&] {
        clamp_(td, 1, TensorDict({{"a", at::ones({})}}));
      },
      ThrowsWith<c10::ValueError>("clamp_", "\"b\""));
  EXPECT_THAT(
      [&] {
        clamp_(td, 1, at::ones({3, 2}));
      },
      ThrowsWith<c10::ValueError>("clamp_", "\"a\"", "Nothing is changed"));
  EXPECT_THAT(td, TensorDictEq(example()));
}

TEST(BinaryTest, NothingIsWrittenInPlaceIfOneLeafCannotBe) {
  const at::Tensor x = at::ones({2});
  const auto with = [&](at::ScalarType dtype) { return TensorDict({{"a", x}, {"b", at::ones({2}, dtype)}}); };
  const TensorDict bools = with(at::kBool), longs = with(at::kLong), bytes = with(at::kByte);
  const TensorDict complex = with(at::kComplexFloat);
  TensorDict flags = bools;
  EXPECT_THAT([&] { flags -= bools; }, ThrowsWith<c10::ValueError>("operator-=", "\"b\""));
  EXPECT_THAT([&] { maximum_(complex, complex); }, ThrowsWith<c10::ValueError>("maximum_", "\"b\""));
  EXPECT_THAT([&] { pow_(longs, -1); }, ThrowsWith<c10::ValueError>("pow_", "\"b\""));
  EXPECT_THAT([&] { remainder_(longs, 0); }, ThrowsWith<c10::ValueError>("remainder_", "\"b\""));
  EXPECT_THAT([&] { clamp_max_(bytes, -300); }, ThrowsWith<c10::ValueError>("clamp_max_", "\"b\""));
  EXPECT_THAT([&] { clamp_(bytes, 2, -300); }, ThrowsWith<c10::ValueError>("clamp_: ", "\"b\""));
  EXPECT_THAT([&] { add_(bytes, bytes, 300); }, ThrowsWith<c10::ValueError>("add_", "\"b\""));
  EXPECT_TRUE(x.equal(at::ones({2})));
}

TEST(BinaryTest, MessagesNameTheCall) {
  EXPECT_THAT(
      [&] {
        pow(example(), TensorDict({{"c", at::ones({})}}));
      },
      ThrowsWith<c10::ValueError>("pow", "\"a\": missing", "\"c\": unexpected"));
  EXPECT_THAT(
      [&] {
        pow_(TensorDict({{"a", at::ones({2}, at::kLong)}}), 0.5);
      },
      ThrowsWith<c10::ValueError>("pow_", "\"a\": result type Float can't be cast"));
}

}  // namespace
}  // namespace graft
