// embedding_bag under transforms equals LibTorch's own code without.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <tuple>

#include "functional/grad.h"
#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

enum Mode { kSum, kMean, kMax };

struct BagOptions {
  std::string name;
  Mode mode = kSum;
  bool scales_by_frequency = false;
  bool has_weights = false;
  bool includes_last_offset = false;
  std::optional<int64_t> padding = std::nullopt;
};

constexpr int64_t kRows = 4, kItems = 6;

/// Offsets of four bags, of which one is empty, and of the end if it is included.
Tensor offsets(const BagOptions& options) {
  return options.includes_last_offset ? at::tensor({0, 2, 2, 5, 6}, at::kLong) : at::tensor({0, 2, 2, 5}, at::kLong);
}

/// The bags of one sample: the weight, the weights of items if there are any, the indices and the offsets.
OperatorCase bag_case(const BagOptions& options) {
  OperatorCase test;
  test.name = options.name + ", mode " + std::to_string(options.mode);
  test.make = [=] {
    Tensors in = {random({kRows, 3})};
    if (options.has_weights) in.push_back(random({kItems}));
    in.push_back(at::randint(kRows, {kItems}, at::kLong));
    in.push_back(offsets(options));
    return in;
  };
  test.f = [=](const Tensors& in) {
    const std::optional<Tensor> weights = options.has_weights ? in[1] : std::optional<Tensor>();
    return std::get<0>(at::embedding_bag(in[0], in[in.size() - 2], in.back(), options.scales_by_frequency, options.mode,
                                         /*sparse=*/false, weights, options.includes_last_offset, options.padding));
  };
  test.differentiable = options.has_weights ? 2 : 1;
  return test;
}

TEST(EmbeddingBagTest, EqualsTheLoop) {
  for (const Mode mode : {kSum, kMean, kMax}) {
    check_set_ups(bag_case({.name = "plain", .mode = mode}));
    check_set_ups(bag_case({.name = "last offset", .mode = mode, .includes_last_offset = true}));
    check_set_ups(bag_case({.name = "padding", .mode = mode, .padding = 1}));
    check_set_ups(bag_case({.name = "padding from the end", .mode = mode, .padding = -1}));
  }
}

TEST(EmbeddingBagTest, EqualsTheLoopWithWeights) {
  check_set_ups(bag_case({.name = "weights", .has_weights = true}));
  check_set_ups(bag_case({.name = "weights and padding", .has_weights = true, .padding = 1}));
}

TEST(EmbeddingBagTest, DividesGradientsByTheFrequencyOfEachRow) {
  // As documented, and as an Embedding does. LibTorch's own embedding_bag takes the frequency of another row on CPU.
  const Tensor weight = random({2, kRows, 3}), indices = at::randint(kRows, {2, kItems}, at::kLong);
  const auto gradients = [&](bool scales) {
    const OperatorCase test = bag_case({.name = "frequency", .mode = kMean, .scales_by_frequency = scales});
    const Tensor starts = offsets({.name = "plain"});
    const auto loss = [&](const Tensor& rows, const Tensor& items) {
      return test.f({rows, items, starts}).square().sum();
    };
    return vmap(grad(loss))(weight, indices);
  };
  const Tensor frequency = indices.unsqueeze(2).eq(at::arange(kRows)).sum(1).clamp_min(1).unsqueeze(2);
  EXPECT_TRUE(gradients(true).allclose(gradients(false) / frequency));
}

TEST(EmbeddingBagTest, EqualsTheLoopByTheOperatorBelow) {
  OperatorCase test = bag_case({.name = "_embedding_bag"});
  test.f = [](const Tensors& in) { return std::get<0>(at::_embedding_bag(in[0], in[1], in[2])); };
  check_set_ups(test);
}

TEST(EmbeddingBagTest, EqualsTheLoopWithIntIndices) {
  OperatorCase test = bag_case({.name = "int"});
  test.f = [](const Tensors& in) {
    return std::get<0>(at::embedding_bag(in[0], in[1].to(at::kInt), in[2].to(at::kInt)));
  };
  check_set_ups(test);
}

TEST(EmbeddingBagTest, TakesNoItemsAtAll) {
  const Tensor weight = random({2, kRows, 3}), indices = at::empty({0}, at::kLong), starts = at::zeros({2}, at::kLong);
  for (const Mode mode : {kSum, kMean, kMax}) {
    const Tensor got = vmap(
        [&](const Tensor& rows) { return std::get<0>(at::embedding_bag(rows, indices, starts, false, mode)); })(weight);
    EXPECT_TRUE(got.equal(at::zeros({2, 2, 3}, at::kDouble)));
  }
}

TEST(EmbeddingBagTest, TellsWhichRowsAreMaxima) {
  const Tensor weight = random({kRows, 3}), indices = at::tensor({3, 1, 0, 2, 1, 1}, at::kLong);
  const Tensor starts = at::tensor({0, 2, 5}, at::kLong);
  const auto rows_of_maxima = [&](const Tensor& rows) {
    return std::get<3>(at::embedding_bag(rows, indices, starts, false, kMax));
  };
  EXPECT_TRUE(vmap(rows_of_maxima)(weight.unsqueeze(0))[0].equal(rows_of_maxima(weight)));
}

TEST(EmbeddingBagTest, RefusesSparseGradientsAlone) {
  const Tensor weight = random({2, kRows, 3}), indices = at::tensor({1, 2}, at::kLong),
               starts = at::tensor({0}, at::kLong);
  const auto sum = [&](const Tensor& rows) {
    return std::get<0>(at::embedding_bag(rows, indices, starts, false, kSum, /*sparse=*/true)).sum();
  };
  EXPECT_TRUE(vmap(sum)(weight).allclose(weight.narrow(1, 1, 2).sum({1, 2})));
  EXPECT_THAT([&] { vmap(grad(sum))(weight); }, ThrowsWith<c10::Error>("embedding_bag", "sparse=false"));
}

TEST(EmbeddingBagTest, ChecksItsArguments) {
  const auto call = [](const Tensor& indices, const Tensor& starts, std::optional<int64_t> padding = {}) {
    const Tensor weight = random({2, kRows, 3});
    return [=] {
      const auto f = [&](const Tensor& rows) {
        return std::get<0>(at::embedding_bag(rows, indices, starts, false, kSum, false, {}, false, padding));
      };
      vmap(f)(weight);
    };
  };
  const Tensor indices = at::tensor({1, 2}, at::kLong), starts = at::tensor({0}, at::kLong);
  EXPECT_THAT(call(indices.unsqueeze(0), starts), ThrowsWith<c10::Error>("indices has to be a 1D Tensor"));
  EXPECT_THAT(call(indices, starts.unsqueeze(0)), ThrowsWith<c10::Error>("offsets has to be a 1D Tensor"));
  EXPECT_THAT(call(indices.to(at::kFloat), starts), ThrowsWith<c10::Error>("indices and offsets of Long or Int"));
  EXPECT_THAT(call(indices, starts, 9), ThrowsWith<c10::Error>("padding_idx must be within the number of embeddings"));
}

TEST(EmbeddingTest, ShortensRowsAsTheLoopDoes) {
  for (const double norm_type : {1., 2., 3.}) {
    const OperatorCase test = {.name = "embedding_renorm_",
                               .f =
                                   [=](const Tensors& in) {
                                     Tensor weight = in[0] * 1;
                                     return at::embedding_renorm_(weight, in[1], 0.5, norm_type);
                                   },
                               .make =
                                   [] {
                                     return Tensors{random({kRows, 3}), at::randint(kRows, {2, 2}, at::kLong)};
                                   },
                               .differentiable = 0};
    check_set_ups(test, {{"b2", "throws: vmap: "}});  // a weight that is not mapped cannot hold what is
  }
}

}  // namespace
}  // namespace graft::testing
