// Mapped functions worked out by hand: small tensors with small numbers, in cases that are easy to get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "tensordict/tensordict.h"
#include "tests/testing/numbers.h"
#include "tests/testing/throws_with.h"
#include "vmap/jacobian.h"
#include "vmap/vmap.h"

namespace graft::testing {

using torch::Tensor;
using torch::indexing::Slice;
using Shape = std::vector<int64_t>;
using OfOne = std::function<Tensor(const Tensor&)>;

constexpr auto kNotMapped = std::nullopt;

int64_t count_distinct_rows(const Tensor& rows) { return std::get<0>(torch::unique_dim(rows, 0)).size(0); }

// --- Dims

TEST(MappedDimsTest, CountFromTheEndIfNegative) {
  const Tensor w = numbers({1, 10, 100}, {3});
  const auto dot = [](const Tensor& column, const Tensor& factors) { return (column * factors).sum(); };
  const Tensor columns = vmap(dot, {.in_dims = {-1, kNotMapped}})(iota({3, 4}), w);
  EXPECT_THAT(list_of(columns), Near({840, 951, 1062, 1173}));
  const auto scale = [](const Tensor& sample, const Tensor& factor) { return sample * factor; };
  const Tensor scaled = vmap(scale, {.in_dims = {-2, 0}, .out_dims = -1})(iota({2, 3, 4}), numbers({1, 2, 3}, {3}));
  ASSERT_EQ(scaled.sizes(), Shape({2, 4, 3}));
  EXPECT_EQ((scaled * iota({2, 4, 3})).sum().item<double>(), 9304);
}

TEST(MappedDimsTest, ThatDoNotFitAreRefusedAndTheNextCallIsRight) {
  const Tensor x = iota({3, 4});
  const OfOne sine = [](const Tensor& sample) { return sample.sin(); };
  const auto add = [](const Tensor& a, const Tensor& b) { return a + b; };
  EXPECT_THROW(vmap(sine, {.in_dims = 2})(x), c10::ValueError);
  EXPECT_THROW(vmap(sine, {.in_dims = -3})(x), c10::ValueError);
  EXPECT_THROW(vmap(sine, {.out_dims = 2})(x), c10::ValueError);
  EXPECT_THROW(vmap(sine, {.in_dims = kNotMapped})(x), c10::ValueError);
  EXPECT_THROW(vmap(sine)(torch::tensor(1.)), c10::ValueError);
  EXPECT_THROW(vmap(add, {.in_dims = {0, 1}})(x, x), c10::ValueError);  // 3 and 4 samples
  EXPECT_THROW(vmap(add, {.in_dims = {0}})(x, x), c10::ValueError);
  EXPECT_THAT(list_of(vmap([](const Tensor& row) { return row.sum(); })(x)), Near({6, 22, 38}));
}

TEST(MappedDimsTest, OfATreeAreBatchDimsAndReturnWhereAsked) {
  // In row i and column j, a sums up to 4 k + 1 and b is k = 3 i + j.
  const TensorDict tree({{"a", iota({4, 3, 2})}, {"n.b", iota({4, 3})}, {"n.c", iota({4, 3, 5})}}, {4, 3});
  const Tensor sums = 5 * iota({4, 3}) + 1, doubled = 2 * iota({4, 3, 2});
  for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{0, 0}, {1, 1}, {1, 0}, {0, 1}}) {
    Shape inside, inside_of_n;
    const auto f = [&](const TensorDict& sample) {
      inside = sample.batch_size();
      inside_of_n = sample.subtree("n").batch_size();
      return TensorDict({{"sum", sample["a"].sum(-1) + sample["n.b"]}, {"double", sample["a"] * 2}},
                        sample.batch_size());
    };
    const TensorDict result = vmap(f, {.in_dims = in, .out_dims = out})(tree);
    EXPECT_EQ(inside, Shape({in == 0 ? 3 : 4}));
    EXPECT_EQ(inside_of_n, inside);
    const bool turned = in != out;
    EXPECT_EQ(Shape(result.batch_size()), turned ? Shape({3, 4}) : Shape({4, 3}));
    EXPECT_TRUE(result["sum"].equal(turned ? sums.t() : sums)) << in << out;
    EXPECT_TRUE(result["double"].equal(turned ? doubled.transpose(0, 1) : doubled)) << in << out;
  }
  EXPECT_EQ(Shape(tree.batch_size()), Shape({4, 3}));
}

// --- Few samples

TEST(OneSampleTest, KeepsItsDim) {
  const std::vector<std::tuple<std::string, OfOne, Shape, double>> cases{
      {"sum", [](const Tensor& v) { return v.sum(); }, {1}, 10},
      {"sum(-1)", [](const Tensor& v) { return v.sum(-1); }, {1}, 10},
      {"squeeze", [](const Tensor& v) { return v.squeeze(); }, {1}, 10},
      {"transpose(0, 0)", [](const Tensor& v) { return v.transpose(0, 0) * 2; }, {1}, 20},
      {"max", [](const Tensor& v) { return v.max(); }, {1}, 10},
      {"softmax", [](const Tensor& v) { return v.softmax(0); }, {1}, 1},
      {"unsqueeze", [](const Tensor& v) { return v.unsqueeze(0); }, {1, 1}, 10},
      {"cumsum", [](const Tensor& v) { return v.cumsum(0); }, {1}, 10},
      {"roll", [](const Tensor& v) { return v.roll(1); }, {1}, 10},
      {"mean", [](const Tensor& v) { return v.mean(); }, {1}, 10}};
  for (const auto& [name, f, shape, value] : cases) {
    const Tensor y = vmap(f)(numbers({10}, {1}));
    EXPECT_EQ(y.sizes(), shape) << name;
    EXPECT_THAT(list_of(y), Near({value})) << name;
  }
  const Tensor squeezed = vmap([](const Tensor& v) { return v.squeeze(); })(torch::ones({1, 1, 1}));
  EXPECT_EQ(squeezed.sizes(), Shape({1}));
  const Tensor slope = jacrev([](const Tensor& v) { return 3 * v; })(numbers({2}, {}));
  EXPECT_EQ(slope.dim(), 0);
  EXPECT_EQ(slope.item<double>(), 3);
}

TEST(NoSampleTest, GivesTheShapesAndDtypesThatSamplesWouldHave) {
  torch::nn::Linear layer(3, 2);
  const TensorDict params({{"weight", torch::ones({2, 3})}, {"bias", torch::ones({2})}});
  const auto linear = [&](const TensorDict& p, const Tensor& row) { return functional_call(layer, p, row); };
  const Tensor x = torch::zeros({0, 3});
  const std::vector<std::tuple<std::string, OfOne, Shape, torch::Dtype>> cases{
      {"sum", [](const Tensor& row) { return row.sum(); }, {0}, torch::kFloat},
      {"linear", [&](const Tensor& row) { return linear(params, row); }, {0, 2}, torch::kFloat},
      {"argmax", [](const Tensor& row) { return row.argmax(); }, {0}, torch::kLong},
      {"constant", [](const Tensor&) { return torch::ones({4}); }, {0, 4}, torch::kFloat},
      {"comparison", [](const Tensor& row) { return row > 0; }, {0, 3}, torch::kBool}};
  for (const auto& [name, f, shape, dtype] : cases) {
    const Tensor y = vmap(f)(x);
    EXPECT_EQ(y.sizes(), shape) << name;
    EXPECT_EQ(y.scalar_type(), dtype) << name;
  }
  const auto loss = [&](const TensorDict& p, const Tensor& row) { return linear(p, row).sum(); };
  const TensorDict gradients = vmap(grad(loss), {.in_dims = {kNotMapped, 0}})(params, x);
  EXPECT_EQ(gradients["weight"].sizes(), Shape({0, 2, 3}));
  EXPECT_EQ(gradients["bias"].sizes(), Shape({0, 2}));
  const Tensor columns = vmap([](const Tensor& row) { return row * 2; }, {.out_dims = 1})(x);
  EXPECT_EQ(columns.sizes(), Shape({3, 0}));
}

// --- Indices and masks

TEST(MappedIndicesTest, OfSeveralLevelsGiveTheDimsOfTheNestedLoops) {
  const Tensor table = iota({7, 4}), rows = torch::arange(6).view({2, 3, 1});
  const auto at_row = [&](const Tensor& row) {
    return vmap([&](const Tensor& column) { return column.index({row}); }, {.in_dims = 1})(table);
  };
  const Tensor picked = vmap(vmap(at_row))(rows);
  ASSERT_EQ(picked.sizes(), Shape({2, 3, 4, 1}));
  EXPECT_THAT(list_of(picked),
              Near({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}));
}

TEST(MappedIndicesTest, BesideASliceWriteWhereTheyDoWithoutVmap) {
  const auto put = [](const Tensor& row, const Tensor& values) {
    Tensor y = row.unsqueeze(0).clone();
    y.index_put_({Slice(), torch::tensor({0, 2})}, values.unsqueeze(0));
    return y;
  };
  const Tensor y = vmap(put)(torch::zeros({2, 3}, torch::kDouble), numbers({1, 2, 3, 4}, {2, 2}));
  ASSERT_EQ(y.sizes(), Shape({2, 1, 3}));
  EXPECT_THAT(list_of(y), Near({1, 0, 2, 3, 0, 4}));
}

TEST(MappedIndicesTest, WithASliceBetweenThemComeFirstInEachSample) {
  const auto pick = [](const Tensor& t, const Tensor& i) { return t.index({0, i, Slice(), i}); };
  const Tensor y = vmap(pick)(iota({2, 3, 4, 2, 4}), torch::tensor({1, 3, 0, 2}).view({2, 2}));
  ASSERT_EQ(y.sizes(), Shape({2, 2, 2}));
  EXPECT_THAT(list_of(y), Near({9, 13, 27, 31, 96, 100, 114, 118}));
}

TEST(MappedMaskTest, IsRefusedAsAnIndexAndWeighsAsALoopWould) {
  const Tensor x = numbers({1, -2, 3, -1, -5, 2}, {2, 3});
  EXPECT_THROW(vmap([](const Tensor& row) { return row.index({row > 0}).sum(); })(x), c10::Error);
  EXPECT_THROW(vmap([](const Tensor& row) { return row.masked_select(row > 0).sum(); })(x), c10::Error);
  EXPECT_THROW(vmap([](const Tensor& row) { return (row > 0).nonzero().sum(); })(x), c10::Error);
  const auto put = [](const Tensor& row) {
    Tensor y = row.clone();
    y.index_put_({y < 0}, 0.5);
    return y;
  };
  EXPECT_THAT([&] { vmap(put)(x); }, ThrowsWith<c10::Error>("boolean mask"));

  const auto fill = [](const Tensor& row) { return row.masked_fill(row < 0, 7); };
  EXPECT_THAT(list_of(vmap(fill)(x)), Near({1, 7, 3, 7, 7, 2}));
  const auto positive_sum = [](const Tensor& row) { return torch::where(row > 0, row, torch::zeros_like(row)).sum(); };
  EXPECT_THAT(list_of(vmap(positive_sum)(x)), Near({4, 2}));
  EXPECT_THAT(list_of(vmap(grad(positive_sum))(x)), Near({1, 0, 1, 0, 0, 1}));
  const Tensor trained = x.clone().requires_grad_();
  EXPECT_THAT(list_of(torch::autograd::grad({vmap(positive_sum)(trained).sum()}, {trained})[0]),
              Near({1, 0, 1, 0, 0, 1}));
}

TEST(MappedMaskTest, ThatIsTheSameForAllSamplesHasAFixedSize) {
  const Tensor x = numbers({1, -2, 3, -1, -5, 2}, {2, 3}), mask = torch::tensor({true, false, true});
  const Tensor sums = vmap([&](const Tensor& row) { return row.index({mask}).sum(); })(x);
  EXPECT_THAT(list_of(sums), Near({4, 1}));
}

// --- In place, and out of the function

TEST(InPlaceTest, CannotWriteASampleIntoATensorOfNone) {
  const Tensor x = numbers({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor captured = torch::zeros({3}, torch::kDouble);
  const std::vector<std::pair<std::string, OfOne>> cases{
      {"an element",
       [](const Tensor& row) {
         const Tensor y = torch::zeros(row.sizes(), torch::kDouble);
         y[0] = row[0];
         return y;
       }},
      {"add_", [](const Tensor& row) { return torch::zeros({3}, torch::kDouble).add_(row); }},
      {"copy_", [](const Tensor& row) { return torch::zeros({3}, torch::kDouble).copy_(row); }},
      {"a captured tensor", [&](const Tensor& row) { return captured.add_(row); }}};
  for (const auto& [name, f] : cases) EXPECT_THROW(vmap(f)(x), c10::Error) << name;
  EXPECT_THAT(list_of(captured), Near({0, 0, 0}));
}

TEST(InPlaceTest, WritesIntoATensorMadeLikeTheSample) {
  const auto f = [](const Tensor& row) {
    Tensor y = torch::zeros_like(row);
    y[0] = y[1] + row[0];
    y += row;
    return y;
  };
  EXPECT_THAT(list_of(vmap(f)(numbers({1, 2, 3, 4, 5, 6}, {2, 3}))), Near({2, 2, 3, 8, 5, 6}));
}

TEST(InPlaceTest, OnTheSampleReachesTheCallersTensor) {
  const Tensor x = numbers({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor sums = vmap([](const Tensor& row) { return row.mul_(2).sum(); })(x);
  EXPECT_THAT(list_of(sums), Near({12, 30}));
  EXPECT_THAT(list_of(x), Near({2, 4, 6, 8, 10, 12}));
}

TEST(EscapedSampleTest, IsRefusedWhenItsCallHasEnded) {
  Tensor kept;
  const auto f = [&](const Tensor& v) {
    kept = v * 2;
    return v.square();
  };
  EXPECT_THAT(list_of(vmap(f)(numbers({1, 2, 3}, {3}))), Near({1, 4, 9}));
  EXPECT_THROW(kept.sin(), c10::Error);
}

// --- Random numbers

TEST(RandomSamplesTest, OfDropoutAreDrawnAsAsked) {
  torch::manual_seed(0);
  torch::nn::Dropout dropout(0.5);
  const Tensor x = torch::ones({6, 8});
  const OfOne drop = [&](const Tensor& row) { return dropout->forward(row); };
  EXPECT_THROW(vmap(drop)(x), c10::Error);
  const Tensor same = vmap(drop, {.randomness = Randomness::kSame})(x);
  const Tensor different = vmap(drop, {.randomness = Randomness::kDifferent})(x);
  EXPECT_EQ(count_distinct_rows(same), 1);
  EXPECT_GT(count_distinct_rows(different), 1);
  for (const Tensor& y : {same, different}) {
    EXPECT_EQ(y.sizes(), Shape({6, 8}));
    EXPECT_TRUE(((y == 0) | (y == 2)).all().item<bool>());
  }
  dropout->eval();
  EXPECT_TRUE(vmap(drop)(x).equal(x));
}

TEST(RandomSamplesTest, NeedAModeAlthoughTheInputIsNotUsed) {
  torch::manual_seed(0);
  const Tensor x = torch::ones({6, 8});
  const OfOne draw = [](const Tensor&) { return torch::rand({2}); };
  EXPECT_THROW(vmap(draw)(x), c10::Error);
  const Tensor same = vmap(draw, {.randomness = Randomness::kSame})(x);
  const Tensor different = vmap(draw, {.randomness = Randomness::kDifferent})(x);
  EXPECT_EQ(same.sizes(), Shape({6, 2}));
  EXPECT_EQ(different.sizes(), Shape({6, 2}));
  EXPECT_EQ(count_distinct_rows(same), 1);
  EXPECT_EQ(count_distinct_rows(different), 6);
}

TEST(RandomSamplesTest, OfNestedLevelsFollowTheModeOfEach) {
  torch::manual_seed(0);
  const auto row = vmap([](const Tensor&) { return torch::rand({}); }, {.randomness = Randomness::kSame});
  const Tensor y = vmap(row, {.randomness = Randomness::kDifferent})(torch::ones({6, 8}));
  ASSERT_EQ(y.sizes(), Shape({6, 8}));
  EXPECT_EQ(count_distinct_rows(y.t()), 1);
  EXPECT_EQ(count_distinct_rows(y), 6);
}

TEST(RandomSamplesTest, OfAnInputThatIsNotMappedHaveItsShape) {
  const auto dropout = [](double p, bool train) {
    return torch::nn::functional::DropoutFuncOptions().p(p).training(train);
  };
  for (const auto& options : {dropout(0, true), dropout(0.3, false)}) {
    const auto f = [&](const Tensor& a, const Tensor& b) {
      return a + torch::nn::functional::dropout(b, options).mean(1);
    };
    const Tensor y = vmap(f, {.in_dims = {0, kNotMapped}, .randomness = Randomness::kDifferent})(
        numbers({1, 2, 3}, {3}), numbers({3, 6, 9}, {1, 3}));
    EXPECT_EQ(y.sizes(), Shape({3, 1}));
    EXPECT_THAT(list_of(y), Near({7, 8, 9}));
  }
  torch::manual_seed(0);
  for (const Randomness randomness : {Randomness::kDifferent, Randomness::kSame}) {
    const auto f = [&](const Tensor&, const Tensor& b) {
      return torch::nn::functional::dropout(b, dropout(0.5, true));
    };
    const Tensor y =
        vmap(f, {.in_dims = {0, kNotMapped}, .randomness = randomness})(torch::zeros({64}), torch::ones({1, 3}));
    ASSERT_EQ(y.sizes(), Shape({64, 1, 3}));
    EXPECT_TRUE(((y == 0) | (y == 2)).all().item<bool>());
    const int64_t distinct_rows = count_distinct_rows(y.flatten(1));
    EXPECT_TRUE(randomness == Randomness::kSame ? distinct_rows == 1 : distinct_rows > 1) << distinct_rows;
  }
}

}  // namespace graft::testing
