#include "tensordict/unary.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "functional/grad.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictNear;
using testing::ThrowsWith;

/// A function of trees, the same in place, and what LibTorch computes for one leaf.
struct Function {
  std::string name;
  bool is_floating;
  TensorDict (*of_tree)(const TensorDict&);
  const TensorDict& (*in_place)(const TensorDict&);
  at::Tensor (*of_leaf)(const at::Tensor&);
};

namespace of_kind {
constexpr bool kOfItsKind = false, kFloating = true;
}

const std::vector<Function>& functions() {
  using namespace of_kind;
#define GRAFT_ROW(name, result) {#name, result, &name, &name##_, &at::name},
  static const auto* const all = new std::vector<Function>{GRAFT_UNARY_FUNCTIONS(GRAFT_ROW)};
#undef GRAFT_ROW
  return *all;
}

/// Values in (0, 1), where every function is defined; leaves of two ranks below two names.
TensorDict example() {
  const at::Tensor values = at::linspace(0.1, 0.9, 12, at::kDouble);
  return TensorDict({{"a", values.slice(0, 0, 6).view({2, 3})}, {"n.b", values.slice(0, 6, 8)}}, {2});
}

TEST(UnaryTest, EveryFunctionIsThatOfTheLeaves) {
  for (const Function& f : functions()) {
    const TensorDict td = example();
    const TensorDict expected({{"a", f.of_leaf(td["a"])}, {"n.b", f.of_leaf(td["n.b"])}}, {2});
    EXPECT_THAT(f.of_tree(td), TensorDictNear(expected, 1e-12)) << f.name;
    EXPECT_EQ(&f.in_place(td), &td);
    EXPECT_THAT(td, TensorDictNear(expected, 1e-12)) << f.name << "_";
    EXPECT_TRUE(f.of_tree(TensorDict()).empty());
  }
}

TEST(UnaryTest, EveryFunctionWorksInsideVmapAndGrad) {
  for (const Function& f : functions()) {
    const TensorDict td = example();
    const TensorDict got = vmap([&](const TensorDict& row) { return f.of_tree(row); })(td);
    EXPECT_THAT(got, TensorDictNear(f.of_tree(td), 1e-12)) << f.name;
    const auto sum = [&](const TensorDict& at) { return f.of_tree(at)["a"].sum(); };
    const at::Tensor slope = grad(sum)(td)["a"];
    constexpr double kStep = 1e-6;
    const at::Tensor expected = (f.of_leaf(td["a"] + kStep) - f.of_leaf(td["a"] - kStep)) / (2 * kStep);
    EXPECT_TRUE(slope.allclose(expected, 1e-6, 1e-8)) << f.name << slope << expected;
  }
}

TEST(UnaryTest, WholeNumbersTakeNoFloatingResultInPlace) {
  for (const Function& f : functions()) {
    const TensorDict td({{"a", at::ones({2})}, {"b", at::ones({2}, at::kLong)}, {"c", at::ones({}, at::kInt)}});
    if (f.is_floating) {
      EXPECT_THAT([&] { f.in_place(td); },
                  ThrowsWith<c10::ValueError>(f.name + "_", "\"b\"", "\"c\"", "Nothing is changed"));
      EXPECT_TRUE(td["a"].equal(at::ones({2})));
      EXPECT_EQ(f.of_leaf(td["b"]).scalar_type(), at::kFloat) << f.name;
    } else if (f.name != "frac") {  // LibTorch has none for whole numbers
      EXPECT_TRUE(f.in_place(td)["b"].equal(f.of_leaf(at::ones({2}, at::kLong)))) << f.name;
    }
  }
}

TEST(UnaryTest, ResultsAreLockedIfTheTreeIs) {
  TensorDict td = example();
  EXPECT_FALSE(exp(td).is_locked());
  EXPECT_TRUE(exp(td.lock_()).is_locked());
}

}  // namespace
}  // namespace graft
