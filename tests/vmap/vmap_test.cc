#include "vmap/vmap.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "functional/grad.h"

namespace graft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Tensor random(at::IntArrayRef sizes, uint64_t seed = 0) {
  at::manual_seed(seed);
  return at::randn(sizes, at::kDouble);
}

bool near(const Tensor& a, const Tensor& b) { return a.sizes() == b.sizes() && at::allclose(a, b, 1e-12, 1e-12); }

Tensor dot(const Tensor& a, const Tensor& b) { return a.dot(b); }

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const c10::ValueError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(VmapTest, EqualsTheLoop) {
  const Tensor x = random({3, 4}), y = random({3, 4}, 1);
  EXPECT_TRUE(near(vmap(dot)(x, y), (x * y).sum(1)));
}

TEST(VmapTest, Example) {
  const Tensor x = random({3, 4}), y = random({5, 4}, 1);
  auto row = vmap(dot, {.in_dims = {std::nullopt, 0}});
  EXPECT_TRUE(near(vmap(row, {.in_dims = {0, std::nullopt}})(x, y), x.mm(y.t())));
}

TEST(VmapTest, MapsNegativeDims) {
  const Tensor x = random({4, 3}), y = random({4}, 1);
  EXPECT_TRUE(near(vmap(dot, {.in_dims = {-1, std::nullopt}})(x, y), x.t().mv(y)));
}

TEST(VmapTest, PutsEachResultWhereAsked) {
  const Tensor x = random({3, 4});
  auto f = [](const Tensor& v) { return std::tuple(v * 2, v.sum(), at::ones({2})); };
  const auto [twice, sum, constant] = vmap(f, {.out_dims = {-1, 0, std::nullopt}})(x);
  EXPECT_TRUE(near(twice, 2 * x.t()));
  EXPECT_TRUE(near(sum, x.sum(1)));
  EXPECT_EQ(constant.sizes(), at::IntArrayRef({2}));
}

TEST(VmapTest, ExpandsResultsThatAreNotMapped) {
  const Tensor y = vmap([](const Tensor&) { return at::ones({2}); }, {.out_dims = 1})(random({3, 4}));
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3}));
}

TEST(VmapTest, MapsTheBatchDimsOfTensorDicts) {
  const TensorDict td({{"a", random({2, 3, 4})}}, {2, 3});
  auto twice = [](const TensorDict& t) {
    EXPECT_EQ(t.batch_size(), (std::vector<int64_t>{2}));
    return TensorDict({{"b", 2 * t["a"]}}, t.batch_size());
  };
  const TensorDict result = vmap(twice, {.in_dims = -1, .out_dims = 1})(td);
  EXPECT_EQ(result.batch_size(), (std::vector<int64_t>{2, 3}));
  EXPECT_TRUE(near(result["b"], 2 * td["a"]));
}

TEST(VmapTest, MapsTheLeavesOfTensorDictsWithoutBatchDims) {
  const TensorDict params({{"w", random({4, 3})}, {"b", random({3}, 1)}});
  auto same = [](const TensorDict& p) { return p; };
  const TensorDict front = vmap(same, {.in_dims = -1})(params);
  EXPECT_EQ(front.batch_size(), (std::vector<int64_t>{3}));
  EXPECT_TRUE(near(front["w"], params["w"].t()));
  const TensorDict back = vmap(same, {.in_dims = -1, .out_dims = -1})(params);
  EXPECT_TRUE(back.batch_size().empty());
  EXPECT_TRUE(near(back["w"], params["w"]));
}

TEST(VmapTest, KeepsNamesOfOneTensorNamesOfOne) {
  const Tensor x = random({3, 2}), y = random({3, 2});
  bool tied = false, apart = false;
  const auto look = [&](const TensorDict& tree) {
    tied = tree["x"].is_same(tree["also_x"]);
    apart = !tree["x"].is_same(tree["y"]);
    return tree;
  };
  const TensorDict result = vmap(look)(TensorDict({{"x", x}, {"y", y}, {"also_x", x}}, {3}));
  EXPECT_TRUE(tied && apart);
  EXPECT_TRUE(result["also_x"].is_same(result["x"]));
  EXPECT_TRUE(near(result["also_x"], x));
}

TEST(VmapTest, DrawsAsAsked) {
  const Tensor x = random({3, 4});
  auto noise = [](const Tensor& v) { return at::rand_like(v); };
  const Tensor same = vmap(noise, {.randomness = Randomness::kSame})(x);
  EXPECT_TRUE(near(same[0], same[1]));
  const Tensor different = vmap(noise, {.randomness = Randomness::kDifferent})(x);
  EXPECT_FALSE(near(different[0], different[1]));
  EXPECT_ANY_THROW(vmap(noise)(x));
}

TEST(VmapTest, NestsWithGradInAnyOrder) {
  const Tensor w = random({4}), x = random({3, 4}, 1);
  auto loss = [](const Tensor& p, const Tensor& v) { return (p * v).tanh().square().sum(); };
  const VmapOptions over_samples{.in_dims = {std::nullopt, 0}};
  const Tensor per_sample = vmap(grad(loss), over_samples)(w, x);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(near(per_sample[i], grad(loss)(w, x[i])));

  auto mean = [&](const Tensor& p, const Tensor& v) { return vmap(loss, over_samples)(p, v).mean(); };
  EXPECT_TRUE(near(grad(mean)(w, x), per_sample.mean(0)));

  auto penalty = [&](const Tensor& p, const Tensor& v) { return vmap(grad(loss), over_samples)(p, v).square().sum(); };
  const Tensor leaf = w.clone().set_requires_grad(true);
  Tensor by_hand = at::zeros({}, at::kDouble);
  for (int i = 0; i < 3; ++i) {
    by_hand = by_hand + torch::autograd::grad({loss(leaf, x[i])}, {leaf}, {}, true, true)[0].square().sum();
  }
  const Tensor expected = torch::autograd::grad({by_hand}, {leaf}, {}, true)[0];
  EXPECT_TRUE(near(grad(penalty)(w, x), expected));
  EXPECT_TRUE(near(torch::autograd::grad({penalty(leaf, x)}, {leaf})[0], expected));
}

TEST(VmapTest, NamesTheLeafWhoseDimIsOutOfRange) {
  const TensorDict params({{"layers.0.weight", random({4, 2})}});
  EXPECT_THAT(
      message_of([&] { vmap([](const TensorDict& p) { return p; }, {.in_dims = 3})(params); }),
      AllOf(HasSubstr("vmap(in_dims=3): leaf \"layers.0.weight\""), HasSubstr("[4, 2], expected -2 <= dim < 2")));
}

TEST(VmapTest, ListsSizesThatDiffer) {
  EXPECT_THAT(message_of([&] {
                vmap(dot)(random({3, 4}), random({5, 4}));
              }),
              AllOf(HasSubstr("3: argument 0"), HasSubstr("5: argument 1")));
}

TEST(VmapTest, RefusesOptionsThatDoNotFit) {
  const Tensor x = random({3, 4});
  EXPECT_THAT(message_of([&] { vmap(dot, {.in_dims = {0}})(x, x); }), HasSubstr("1 entries"));
  EXPECT_THAT(message_of([&] { vmap(dot, {.in_dims = std::nullopt})(x, x); }), HasSubstr("no argument is mapped"));
  EXPECT_THAT(message_of([&] { vmap([](const Tensor& v, int) { return v; })(x, 1); }), HasSubstr("argument 1"));
  EXPECT_THAT(message_of([&] { vmap(dot, {.out_dims = std::nullopt})(x, x); }), HasSubstr("result 0"));
  EXPECT_THAT(message_of([&] { vmap(dot, {.out_dims = 1})(x, x); }), HasSubstr("-1 <= dim < 1"));
  EXPECT_EQ(internal::depth(), 0);
}

TEST(VmapTest, LeavesNoTraceAfterAnException) {
  const Tensor x = random({3, 4});
  auto throwing = [](const Tensor&) -> Tensor { throw std::runtime_error("user"); };
  EXPECT_THROW(vmap(throwing)(x), std::runtime_error);
  EXPECT_THROW(vmap(grad(throwing))(x), std::runtime_error);
  EXPECT_THROW(grad(vmap(throwing))(x), std::runtime_error);
  EXPECT_EQ(internal::depth(), 0);
  EXPECT_TRUE(at::GradMode::is_enabled());
}

}  // namespace
}  // namespace graft
