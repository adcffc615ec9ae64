#include "tensordict/reduce.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

/// A reduction of a tree, and what it makes of all elements of one tensor without dims kept.
struct Function {
  std::string name;
  std::function<TensorDict(const TensorDict&, const ReducedDims&, bool keepdim)> of_tree;
  std::function<at::Tensor(const at::Tensor&)> of_all;
};

#define GRAFT_ROW(name)                                                                                      \
  {                                                                                                          \
#name, [](const TensorDict& t, const ReducedDims& d,                                                     \
              bool keepdim) { return name(t, d, keepdim); }, [](const at::Tensor& x) { return at::name(x); } \
  }
const std::vector<Function> kFunctions{
    GRAFT_ROW(sum),
    GRAFT_ROW(prod),
    GRAFT_ROW(amax),
    GRAFT_ROW(amin),
    GRAFT_ROW(mean),
    GRAFT_ROW(nansum),
    GRAFT_ROW(nanmean),
    GRAFT_ROW(norm),
    GRAFT_ROW(std),
    GRAFT_ROW(var),
    {"logsumexp", [](const TensorDict& t, const ReducedDims& d, bool keepdim) { return logsumexp(t, d, keepdim); },
     [](const at::Tensor& x) { return x.exp().sum().log(); }},
    {"quantile", [](const TensorDict& t, const ReducedDims& d, bool keepdim) { return quantile(t, 0.3, d, keepdim); },
     [](const at::Tensor& x) { return at::quantile(x, 0.3); }},
    {"var without correction",
     [](const TensorDict& t, const ReducedDims& d, bool keepdim) { return var(t, d, keepdim, 0); },
     [](const at::Tensor& x) { return (x - x.mean()).square().mean(); }},
};

/// A tensor of bools, which at::tensor does not make.
at::Tensor bools(std::initializer_list<int64_t> values) { return at::tensor(values).to(at::kBool); }

/// Leaves with and without dims beyond the batch dims, and a part with a batch dim of its own.
TensorDict example() {
  const at::Tensor x = at::linspace(-1, 2, 60, at::kDouble).sin();
  TensorDict td({{"a", x.slice(0, 0, 24).view({2, 3, 4})}, {"b", x.slice(0, 24, 30).view({2, 3})}}, {2, 3});
  td.set("part", TensorDict({{"c", x.slice(0, 30, 60).view({2, 3, 5})}}, {2, 3, 5}));
  return td;
}

/// Reduces the first dims of a leaf to none by looping over what comes behind.
at::Tensor reduce_front(const at::Tensor& x, int64_t dims, const Function& f) {
  if (x.dim() == dims) return f.of_all(x);
  const Sizes beyond = x.sizes().slice(static_cast<std::size_t>(dims)).vec();
  const at::Tensor columns = x.flatten(dims);
  std::vector<at::Tensor> results;
  for (int64_t i = 0; i < columns.size(-1); ++i) results.push_back(f.of_all(columns.select(-1, i)));
  return at::stack(results).view(beyond);
}

/// Reduces the last dims of a leaf, as above.
at::Tensor reduce_back(const at::Tensor& x, int64_t from, const Function& f) {
  const at::Tensor rows = x.flatten(0, from - 1);
  std::vector<at::Tensor> results;
  for (int64_t i = 0; i < rows.size(0); ++i) results.push_back(f.of_all(rows[i]));
  return at::stack(results).view(x.sizes().slice(0, static_cast<std::size_t>(from)));
}

TEST(ReduceTest, LeavesBecomeNumbers) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const TensorDict expected({{"a", f.of_all(td["a"])}, {"b", f.of_all(td["b"])}, {"part.c", f.of_all(td["part.c"])}});
    EXPECT_THAT(f.of_tree(td, kAllDims, false), TensorDictNear(expected, 1e-12)) << f.name;
    const TensorDict kept = f.of_tree(td, kAllDims, true);
    EXPECT_EQ(kept.batch_size(), (Sizes{1, 1}));
    EXPECT_EQ(kept["a"].sizes(), (Sizes{1, 1, 1}));
    EXPECT_NEAR(kept["a"].item<double>(), expected["a"].item<double>(), 1e-12) << f.name;
  }
}

TEST(ReduceTest, BatchDimsAreReduced) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    for (const ReducedDims& first : {ReducedDims(0), ReducedDims(-2)}) {
      const TensorDict got = f.of_tree(td, first, false);
      EXPECT_EQ(got.batch_size(), Sizes{3});
      EXPECT_EQ(got.batch_size("part"), (Sizes{3, 5}));
      for (const auto& [path, leaf] : td.leaves()) {
        EXPECT_TRUE(got[path].allclose(reduce_front(leaf, 1, f))) << f.name << path;
      }
    }
    const TensorDict both = f.of_tree(td, {-1, 0}, false), kept = f.of_tree(td, {0, 1}, true);
    EXPECT_EQ(both.batch_size(), Sizes{});
    EXPECT_EQ(kept.batch_size(), (Sizes{1, 1}));
    EXPECT_EQ(kept.batch_size("part"), (Sizes{1, 1, 5}));
    for (const auto& [path, leaf] : td.leaves()) {
      const at::Tensor expected = reduce_front(leaf, 2, f);
      EXPECT_TRUE(both[path].allclose(expected)) << f.name << path;
      EXPECT_TRUE(kept[path].allclose(expected.unsqueeze(0).unsqueeze(0))) << f.name << path;
    }
  }
}

TEST(ReduceTest, FeatureDimsAreThoseBeyondTheBatchDims) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const TensorDict got = f.of_tree(td, kFeatureDims, false);
    EXPECT_EQ(got.batch_size(), (Sizes{2, 3}));
    EXPECT_EQ(got.batch_size("part"), (Sizes{2, 3, 5}));
    EXPECT_TRUE(got["a"].allclose(reduce_back(td["a"], 2, f))) << f.name;
    EXPECT_EQ(f.of_tree(td, kFeatureDims, true)["a"].sizes(), (Sizes{2, 3, 1}));
    for (const char* path : {"b", "part.c"}) {  // nothing is left to reduce but single numbers
      const at::Tensor numbers = td[path].flatten();
      std::vector<at::Tensor> expected;
      for (int64_t i = 0; i < numbers.numel(); ++i) expected.push_back(f.of_all(numbers[i]));
      EXPECT_TRUE(got[path].flatten().allclose(at::stack(expected), 1e-12, 1e-12, /*equal_nan=*/true)) << f.name;
    }
  }
}

TEST(ReduceTest, WorksInsideVmapAndGrad) {
  const TensorDict td = example();
  for (const Function& f : kFunctions) {
    const auto of_rows = [&](const TensorDict& row) { return f.of_tree(row, 0, false); };
    EXPECT_THAT(vmap(of_rows)(td), TensorDictNear(f.of_tree(td, 1, false), 1e-12)) << f.name;

    const auto weights = at::linspace(1, 2, 3, at::kDouble);
    const auto total = [&](const at::Tensor& a) {
      return (weights * f.of_tree(TensorDict({{"a", a}}, {3, 2}), 1, false)["a"]).sum();
    };
    const at::Tensor a = td["b"].t();
    const at::Tensor slope = grad(total)(a);
    constexpr double kStep = 1e-6;
    for (int64_t i = 0; i < 6; ++i) {
      const at::Tensor step = (at::arange(6) == i).view({3, 2}).to(at::kDouble) * kStep;
      const double expected = (total(a + step) - total(a - step)).item<double>() / (2 * kStep);
      EXPECT_NEAR(slope.flatten()[i].item<double>(), expected, 1e-6) << f.name;
    }
  }
}

TEST(ReduceTest, DtypesThatAFunctionDoesNotTakeAreListed) {
  const TensorDict td({{"a", at::ones({2})}, {"b", at::ones({2}, at::kLong)}, {"c", at::ones({2}, at::kBool)}}, {2});
  const auto both = ThrowsWith<c10::ValueError>("\"b\": dtype long", "\"c\": dtype bool");
  EXPECT_THAT([&] { mean(td); }, ThrowsWith<c10::ValueError>("mean", "\"b\": dtype long", "\"c\": dtype bool"));
  EXPECT_THAT([&] { nanmean(td); }, both);
  EXPECT_THAT([&] { norm(td); }, both);
  EXPECT_THAT([&] { std(td, 0); }, both);
  EXPECT_THAT([&] { var(td, 0); }, both);
  EXPECT_THAT([&] { quantile(td, 0.5); }, both);
  EXPECT_THAT([&] { softmax(td, 0); }, both);
  EXPECT_EQ(sum(td)["c"].item<int64_t>(), 2);
  EXPECT_EQ(sum(td)["b"].scalar_type(), at::kLong);
  EXPECT_EQ(nansum(td)["b"].item<int64_t>(), 2);
}

TEST(ReduceTest, OnlyBatchDimsCanBeNamedAndOnce) {
  const TensorDict td = example();
  EXPECT_THAT([&] { sum(td, 2); }, ThrowsWith<c10::IndexError>("sum(dim=2)", "-2 <= dim < 2"));
  EXPECT_THAT([&] { amax(td, {0, -3}); }, ThrowsWith<c10::IndexError>("amax(dim=-3)"));
  EXPECT_THAT([&] { mean(td, {0, -2}); }, ThrowsWith<c10::ValueError>("mean", "twice"));
  EXPECT_THAT([&] { max(td, 2); }, ThrowsWith<c10::IndexError>("max(dim=2)"));
  EXPECT_THAT([&] { cummin(td, 2); }, ThrowsWith<c10::IndexError>("cummin(dim=2)"));
  EXPECT_THAT([&] { softmax(td, 2); }, ThrowsWith<c10::IndexError>("softmax(dim=2)"));
}

TEST(ReduceTest, NansAreLeftOut) {
  const TensorDict td({{"a", at::tensor({1., std::nan(""), 3.})}});
  EXPECT_EQ(nansum(td)["a"].item<double>(), 4);
  EXPECT_EQ(nanmean(td)["a"].item<double>(), 2);
  EXPECT_TRUE(std::isnan(sum(td)["a"].item<double>()));
}

TEST(ReduceTest, ExtremesComeWithTheirPlaces) {
  const TensorDict td = example();
  const auto expect = [&](const ValuesAndIndices& got, auto of_leaf) {
    for (const auto& [path, leaf] : td.leaves()) {
      const auto [values, indices] = of_leaf(leaf);
      EXPECT_TRUE(got.values[path].equal(values) && got.indices[path].equal(indices)) << path;
    }
  };
  expect(max(td, 1), [](const at::Tensor& x) { return at::max(x, 1); });
  expect(min(td, -1, true), [](const at::Tensor& x) { return at::min(x, 1, true); });
  expect(cummax(td, 0), [](const at::Tensor& x) { return at::cummax(x, 0); });
  expect(cummin(td, 1), [](const at::Tensor& x) { return at::cummin(x, 1); });
  EXPECT_EQ(max(td, 1).values.batch_size("part"), (Sizes{2, 5}));
  EXPECT_EQ(min(td, -1, true).indices.batch_size(), (Sizes{2, 1}));
  EXPECT_EQ(cummax(td, 0).values.batch_size(), (Sizes{2, 3}));
}

TEST(ReduceTest, SoftmaxIsAlongABatchDim) {
  const TensorDict td = example(), got = softmax(td, -1);
  for (const auto& [path, leaf] : td.leaves()) EXPECT_TRUE(got[path].equal(at::softmax(leaf, 1)));
}

TEST(ReduceTest, AllAndAnyAskTheWholeTreeOrEachLeaf) {
  const TensorDict td({{"a", bools({1, 0}).view({2, 1})}, {"b", at::tensor({1., 2.})}}, {2});
  EXPECT_FALSE(all(td).item<bool>());
  EXPECT_TRUE(any(td).item<bool>());
  EXPECT_THAT(all(td, kAllDims), TensorDictEq(TensorDict({{"a", at::scalar_tensor(false, at::kBool)},
                                                          {"b", at::scalar_tensor(true, at::kBool)}})));
  EXPECT_THAT(any(td, 0), TensorDictEq(TensorDict({{"a", bools({1})}, {"b", at::scalar_tensor(true, at::kBool)}})));
  EXPECT_THAT(all(td, kFeatureDims), TensorDictEq(TensorDict({{"a", bools({1, 0})}, {"b", bools({1, 1})}}, {2})));
  EXPECT_TRUE(all(TensorDict()).item<bool>());
  EXPECT_FALSE(any(TensorDict()).item<bool>());
  const auto of_rows = [](const TensorDict& row) { return all(row); };
  EXPECT_TRUE(vmap(of_rows)(td).equal(bools({1, 0})));
}

TEST(ReduceTest, ResultsAreNotLockedAndOfAnEmptyTreeAreEmpty) {
  TensorDict td = example();
  td.lock_();
  EXPECT_FALSE(sum(td).is_locked() || sum(td, 0).is_locked() || sum(td, kFeatureDims).is_locked());
  EXPECT_FALSE(max(td, 0).values.is_locked() || softmax(td, 0).is_locked());
  EXPECT_EQ(sum(TensorDict(Sizes{2, 3}), 0).batch_size(), Sizes{3});
  EXPECT_TRUE(norm(TensorDict()).empty());
}

}  // namespace
}  // namespace graft
