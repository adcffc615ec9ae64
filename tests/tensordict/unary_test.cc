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
  TensorDict (*of_tree)(const TensorDict&);
  const TensorDict& (*in_place)(const TensorDict&);
  at::Tensor (*of_leaf)(const at::Tensor&);
};

const std::vector<Function>& functions() {
#define GRAFT_ROW(name) {#name, &name, &name##_, &at::name},
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

/// Says whether LibTorch computes the function in place for the dtype.
bool is_taken(const Function& f, at::ScalarType dtype) {
  at::Tensor leaf = at::ones({2}, dtype);
  try {
    leaf.copy_(f.of_leaf(leaf));
    return f.of_leaf(leaf).scalar_type() == dtype;
  } catch (const c10::Error&) {
    return false;
  }
}

TEST(UnaryTest, NothingIsWrittenInPlaceIfOneLeafDoesNotTakeTheResult) {
  for (const Function& f : functions()) {
    for (const at::ScalarType dtype : {at::kLong, at::kBool, at::kComplexFloat}) {
      SCOPED_TRACE(f.name + " of " + toString(dtype));
      const TensorDict td({{"a", at::full({2}, 0.5)}, {"b", at::ones({2}, dtype)}, {"c", at::ones({}, dtype)}});
      if (is_taken(f, dtype)) {
        EXPECT_TRUE(f.in_place(td)["b"].equal(f.of_leaf(at::ones({2}, dtype))));
      } else {
        EXPECT_THAT([&] { f.in_place(td); },
                    ThrowsWith<c10::ValueError>(f.name + "_", "\"b\"", "\"c\"", "Nothing is changed"));
        EXPECT_TRUE(td["a"].equal(at::full({2}, 0.5)));
      }
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
