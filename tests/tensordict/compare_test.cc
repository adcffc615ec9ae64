#include "tensordict/compare.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

struct Function {
  std::string name;
  std::function<TensorDict(const TensorDict&, const Operand&)> of_tree;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&)> of_leaf;
};

#define GRAFT_ROW(name)                                                                                    \
  {                                                                                                        \
#name, [](const TensorDict& t,                                                                         \
              const Operand& o) { return name(t, o); }, [](const at::Tensor& a,                            \
                                                           const at::Tensor& b) { return at::name(a, b); } \
  }
const std::vector<Function> kFunctions{GRAFT_ROW(eq),          GRAFT_ROW(ne),         GRAFT_ROW(lt),
                                       GRAFT_ROW(le),          GRAFT_ROW(gt),         GRAFT_ROW(ge),
                                       GRAFT_ROW(logical_and), GRAFT_ROW(logical_or), GRAFT_ROW(logical_xor)};
#undef GRAFT_ROW

/// A tensor of bools, which at::tensor does not make.
at::Tensor bools(std::initializer_list<int64_t> values) { return at::tensor(values).to(at::kBool); }

TensorDict example() { return TensorDict({{"a", at::arange(6.).view({2, 3})}, {"b", at::arange(2)}}, {2}); }

TEST(CompareTest, BitwiseFunctionsWorkOnBits) {
  TensorDict td({{"a", at::tensor({12, 10, 7}).view({3, 1})}, {"b", bools({1, 0, 1})}}, {3});
  const at::Tensor a = td["a"], b = td["b"];
  const TensorDict expected_and({{"a", at::bitwise_and(a, a.flip(0))}, {"b", at::bitwise_and(b, b.logical_not())}},
                                {3});
  const TensorDict other({{"b", b.logical_not()}, {"a", a.flip(0)}}, {3});
  EXPECT_THAT(bitwise_and(td, other), TensorDictEq(expected_and));
  EXPECT_TRUE(bitwise_or(td, other)["a"].equal(at::tensor({15, 10, 15}).view({3, 1})));
  EXPECT_TRUE(bitwise_xor(td, other)["a"].equal(at::tensor({11, 0, 11}).view({3, 1})));
  EXPECT_TRUE(bitwise_not(td)["a"].equal(at::tensor({-13, -11, -8}).view({3, 1})));
  EXPECT_TRUE(bitwise_not(td)["b"].equal(bools({0, 1, 0})));
  EXPECT_TRUE(bitwise_and(td, 4)["a"].equal(at::tensor({4, 0, 4}).view({3, 1})));
  EXPECT_TRUE(bitwise_and(td, at::tensor({4, 2, 1}))["a"].equal(at::tensor({4, 2, 1}).view({3, 1})));
  td.lock_();
  EXPECT_TRUE(bitwise_or(td, other).is_locked());
  EXPECT_TRUE(bitwise_not(td).is_locked());
}

TEST(CompareTest, EveryFunctionTakesTreesTensorsAndNumbers) {
  const TensorDict td = example();
  const TensorDict other({{"b", at::tensor({1, 1})}, {"a", at::full({2, 3}, 2.)}}, {2});
  const at::Tensor per_sample = at::tensor({0, 4}), one = at::scalar_tensor(1);
  for (const Function& f : kFunctions) {
    const auto by_leaves = [&](const at::Tensor& a, const at::Tensor& b) {
      return TensorDict({{"a", f.of_leaf(td["a"], a)}, {"b", f.of_leaf(td["b"], b)}}, {2});
    };
    EXPECT_THAT(f.of_tree(td, other), TensorDictEq(by_leaves(other["a"], other["b"]))) << f.name;
    EXPECT_THAT(f.of_tree(td, per_sample), TensorDictEq(by_leaves(per_sample.view({2, 1}), per_sample))) << f.name;
    EXPECT_THAT(f.of_tree(td, 1), TensorDictEq(by_leaves(one, one))) << f.name;
    EXPECT_EQ(f.of_tree(td, 1)["a"].scalar_type(), at::kBool);
    const TensorDict mapped =
        vmap([&](const TensorDict& l, const TensorDict& r) { return f.of_tree(l, r); })(td, other);
    EXPECT_THAT(mapped, TensorDictEq(f.of_tree(td, other))) << f.name;
    EXPECT_THAT(
        [&] {
          f.of_tree(td, TensorDict({{"a", at::ones({})}}));
        },
        ThrowsWith<c10::ValueError>(f.name, "\"b\": missing"));
  }
}

TEST(CompareTest, PredicatesAreThoseOfTheLeaves) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor x = at::tensor({0., 1., kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()});
  const TensorDict td({{"x", x}, {"n", at::tensor({0, 2})}});
  const auto expect = [&](const TensorDict& got, const at::Tensor& of_x, const at::Tensor& of_n) {
    EXPECT_THAT(got, TensorDictEq(TensorDict({{"x", of_x}, {"n", of_n}})));
  };
  const at::Tensor all = bools({1, 1}), none = bools({0, 0});
  expect(isfinite(td), bools({1, 1, 0, 0, 0}), all);
  expect(isnan(td), bools({0, 0, 0, 0, 1}), none);
  expect(isposinf(td), bools({0, 0, 1, 0, 0}), none);
  expect(isneginf(td), bools({0, 0, 0, 1, 0}), none);
  expect(isreal(td), at::ones({5}, at::kBool), all);
  expect(logical_not(td), bools({1, 0, 0, 0, 0}), bools({1, 0}));
}

TEST(CompareTest, LogicKeepsTheLockAndComparisonsDoNot) {
  TensorDict td = example();
  td.lock_();
  EXPECT_FALSE(eq(td, 1).is_locked());
  EXPECT_TRUE(logical_and(td, td).is_locked());
  EXPECT_TRUE(isnan(td).is_locked());
}

}  // namespace
}  // namespace graft
