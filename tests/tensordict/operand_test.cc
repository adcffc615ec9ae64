#include "tensordict/operand.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tensordict/pointwise.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

at::Tensor counting(at::IntArrayRef sizes) { return at::arange(1, c10::multiply_integers(sizes) + 1).view(sizes); }

TEST(OperandTest, IsATreeATensorOrANumber) {
  const TensorDict tree;
  const at::Tensor tensor = at::ones({2});
  EXPECT_EQ(Operand(tree).tree(), &tree);
  EXPECT_EQ(Operand(tensor).tensor(), &tensor);
  EXPECT_EQ(Operand(3).number()->toInt(), 3);
  EXPECT_EQ(Operand(0.5).number()->toDouble(), 0.5);
  EXPECT_EQ(Operand(at::Scalar(2)).number()->toInt(), 2);
  EXPECT_EQ(Operand(3).tree(), nullptr);
  EXPECT_EQ(Operand(tree).tensor(), nullptr);
}

/// One pair of batch sizes, with the shapes that leaves have beyond those.
struct Case {
  Sizes left, left_beyond, right, right_beyond, result;
};

Sizes joined(Sizes front, const Sizes& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

/// Computes `left * right` place by place of the batch dims of the result.
at::Tensor by_places(const at::Tensor& left, int64_t left_dims, const at::Tensor& right, int64_t right_dims,
                     const Sizes& batch_size) {
  const auto expanded = [&](const at::Tensor& value, int64_t dims) {
    const Sizes beyond = value.sizes().slice(static_cast<std::size_t>(dims)).vec();
    return value.expand(joined(batch_size, beyond)).flatten(0, static_cast<int64_t>(batch_size.size()) - 1);
  };
  const at::Tensor l = expanded(left, left_dims), r = expanded(right, right_dims);
  std::vector<at::Tensor> places;
  for (int64_t i = 0; i < l.size(0); ++i) places.push_back(l[i] * r[i]);
  return at::stack(places).unflatten(0, batch_size);
}

TEST(OperandTest, TreesBroadcastOverTheBatchDimsOfEachOther) {
  const std::vector<Case> cases{
      {{2, 3}, {4}, {3}, {4}, {2, 3}},    {{3}, {4}, {2, 3}, {4}, {2, 3}}, {{2, 1}, {}, {1, 3}, {4}, {2, 3}},
      {{3}, {}, {2, 3}, {4}, {2, 3}},     {{2, 3}, {}, {3}, {2}, {2, 3}},  {{2}, {}, {2}, {2}, {2}},
      {{2}, {2, 2}, {2}, {2}, {2}},       {{2}, {}, {}, {5}, {2}},         {{}, {5}, {2}, {}, {2}},
      {{2}, {1, 3}, {2, 2}, {3}, {2, 2}},
  };
  for (const auto& [left, left_beyond, right, right_beyond, result] : cases) {
    const TensorDict a({{"x", counting(joined(left, left_beyond))}}, left);
    const TensorDict b({{"x", counting(joined(right, right_beyond))}}, right);
    const auto dims = [](const Sizes& sizes) { return static_cast<int64_t>(sizes.size()); };
    const TensorDict expected({{"x", by_places(a["x"], dims(left), b["x"], dims(right), result)}}, result);
    EXPECT_THAT(a * b, TensorDictEq(expected)) << left << left_beyond << right << right_beyond;
    EXPECT_THAT(b * a, TensorDictEq(expected));
  }
}

TEST(OperandTest, TensorsMeetTheBatchDimsAndNothingBeyond) {
  const TensorDict td({{"a", counting({2, 3, 4})}, {"b", counting({2, 3})}}, {2, 3});
  for (const Sizes& sizes : {Sizes{}, {3}, {1}, {2, 1}, {2, 3}, {5, 2, 3}, {5, 1, 1}}) {
    const at::Tensor factor = counting(sizes);
    const at::Tensor beside_a = sizes.empty() ? factor : factor.unsqueeze(-1);
    const TensorDict expected({{"a", td["a"] * beside_a}, {"b", td["b"] * factor}},
                              sizes.size() == 3 ? Sizes{5, 2, 3} : Sizes{2, 3});
    EXPECT_THAT(td * factor, TensorDictEq(expected)) << sizes;
  }
  EXPECT_THAT([&] { td* at::ones({4}); }, ThrowsWith<c10::ValueError>("operator*", "shape [4]", "[2, 3]"));
  EXPECT_THAT(TensorDict({{"a", counting({4})}}) * counting({3}),
              TensorDictEq(TensorDict({{"a", counting({4}) * counting({3, 1})}}, {3})));
}

TEST(OperandTest, BatchSizesThatDoNotBroadcastThrow) {
  const TensorDict two({{"a", at::ones({2, 3})}}, {2}), other({{"a", at::ones({2, 3})}}, {2, 3});
  EXPECT_THAT([&] { two + other; }, ThrowsWith<c10::ValueError>("operator+", "batch size [2, 3]", "[2]"));
}

TEST(OperandTest, PartsKeepTheirBatchDims) {
  TensorDict td({{"a", counting({2, 5})}}, {2});
  td.set("part", TensorDict({{"x", counting({2, 3})}}, {2, 3}));
  TensorDict other({{"a", counting({2, 5})}}, {2});
  other.set("part", TensorDict({{"x", counting({2, 3, 4})}}, {2, 3}));
  const TensorDict product = td * other;
  EXPECT_EQ(product.batch_size("part"), (Sizes{2, 3}));
  EXPECT_TRUE(product["part.x"].equal(counting({2, 3, 1}) * counting({2, 3, 4})));
  const TensorDict scaled = other * counting({2});
  EXPECT_EQ(scaled.batch_size("part"), (Sizes{2, 3}));
  EXPECT_TRUE(scaled["part.x"].equal(counting({2, 3, 4}) * counting({2, 1, 1})));
  EXPECT_EQ((other * counting({7, 1})).batch_size("part"), (Sizes{7, 2, 3}));
}

TEST(OperandTest, ATensorWithoutDimsDoesNotChangeDtypes) {
  const TensorDict td({{"half", at::ones({2}, at::kHalf)}, {"float", at::ones({2, 3})}}, {2});
  const TensorDict scaled = td * at::scalar_tensor(2., at::kDouble);
  EXPECT_EQ(scaled["half"].scalar_type(), at::kHalf);
  EXPECT_EQ(scaled["float"].scalar_type(), at::kFloat);
}

TEST(OperandTest, LeavesThatAutogradGuardsAreWrittenToUnderANoGradGuardOnly) {
  TensorDict td({{"a", at::ones({2})}, {"b", at::ones({2}).requires_grad_()}});
  EXPECT_THAT(
      [&] { td += 1; },
      ThrowsWith<c10::ValueError>("operator+=", "\"b\": the leaf there is guarded by autograd", "Nothing is changed"));
  EXPECT_THAT([&] { td *= td; },
              ThrowsWith<c10::ValueError>("operator*=", "\"b\": the leaf there is guarded by autograd"));
  EXPECT_TRUE(td["a"].equal(at::ones({2})));
  const at::NoGradGuard no_grad;
  td += 1;
  EXPECT_TRUE(td["b"].equal(at::full({2}, 2.)));
}

TEST(OperandTest, NothingIsWrittenInPlaceIfOneLeafIsExpanded) {
  TensorDict td({{"a", at::ones({2})}, {"b", at::ones({1}).expand({2})}});
  EXPECT_THAT([&] { td += 1; }, ThrowsWith<c10::ValueError>("operator+=", "\"b\": the leaf there is expanded"));
  EXPECT_THAT([&] { td *= td; }, ThrowsWith<c10::ValueError>("operator*=", "\"b\""));
  EXPECT_TRUE(td["a"].equal(at::ones({2})));
  EXPECT_TRUE(td["b"].equal(at::ones({2})));
}

TEST(OperandTest, WhatCannotBeWrittenInPlaceIsListedAndNothingIsChanged) {
  TensorDict td({{"a", at::ones({2, 3})}, {"b", at::ones({2}, at::kLong)}, {"c", at::ones({2}, at::kLong)}}, {2});
  const TensorDict before({{"a", at::ones({2, 3})}, {"b", at::ones({2}, at::kLong)}, {"c", at::ones({2}, at::kLong)}},
                          {2});
  EXPECT_THAT([&] { td += 0.5; }, ThrowsWith<c10::ValueError>("operator+=", "\"b\": result type Float can't be cast",
                                                              "\"c\"", "Nothing is changed"));
  EXPECT_THAT([&] { td /= 2; }, ThrowsWith<c10::ValueError>("operator/=", "\"b\"", "\"c\""));
  EXPECT_THAT([&] { td *= at::full({2}, 0.5); }, ThrowsWith<c10::ValueError>("\"b\"", "\"c\""));
  EXPECT_THAT(
      [&] {
        td *= at::ones({5, 2}, at::kLong);
      },
      ThrowsWith<c10::ValueError>("\"a\": shape [5, 2, 1], expected one that broadcasts to [2, 3]", "\"b\""));
  EXPECT_THAT([&] { td += TensorDict({{"a", at::ones({2, 3})}}, {2}); }, ThrowsWith<c10::ValueError>("\"b\": missing"));
  EXPECT_THAT(td, TensorDictEq(before));
  td *= at::tensor({2, 3});
  EXPECT_TRUE(td["b"].equal(at::tensor({2, 3})));
  EXPECT_TRUE(td["a"].equal(at::tensor({2.f, 3.f}).view({2, 1}).expand({2, 3})));
}

}  // namespace
}  // namespace graft
