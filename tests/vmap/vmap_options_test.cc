// vmap over parts of arguments, in chunks, and over no samples.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "functional/grad.h"
#include "functional/internal/transform_level.h"
#include "tensordict/structure.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

struct Sample {
  at::Tensor x;
  std::optional<at::Tensor> weight;
  std::map<std::string, at::Tensor> extra;
};
GRAFT_TREE(Sample, x, weight, extra)

namespace graft {
namespace {

using testing::ThrowsWith;

Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

class VmapOptionsTest : public ::testing::Test {
 protected:
  void SetUp() override { at::manual_seed(0); }
  void TearDown() override { EXPECT_EQ(internal::depth(), 0); }
};

// --- Dims of parts

TEST_F(VmapOptionsTest, MapsElementsOfAPair) {
  const auto f = [](const std::pair<Tensor, Tensor>& in, const Tensor& z) { return in.first * in.second + z; };
  const std::pair in(random({4}), random({5, 4}));
  const Tensor z = random({4, 5});
  const Tensor y = vmap(f, {.in_dims = {{std::nullopt, 0}, -1}})(in, z);
  EXPECT_TRUE(y.equal(in.first * in.second + z.t()));
}

TEST_F(VmapOptionsTest, MapsNestedLists) {
  using Nested = std::vector<std::tuple<Tensor, Tensor>>;
  const auto f = [](const Nested& in) { return std::get<0>(in[0]) * std::get<1>(in[1]); };
  const Nested in{{random({3, 2}), random({7})}, {random({7}), random({2, 3})}};
  const Tensor y = vmap(f, {.in_dims = {{{0, std::nullopt}, {std::nullopt, 1}}}})(in);
  EXPECT_TRUE(y.equal(std::get<0>(in[0]) * std::get<1>(in[1]).t()));
}

TEST_F(VmapOptionsTest, RefusesDimsOfElementsThatAreNotThere) {
  using Values = std::vector<Tensor>;
  const auto sum = [](const std::pair<Tensor, Tensor>& in) { return in.first + in.second; };
  const std::pair in(random({4}), random({4}));
  EXPECT_THAT([&] { vmap(sum, {.in_dims = {{0, 0, 1}}})(in); }, ThrowsWith<c10::ValueError>("in_dims has dim 1"));
  EXPECT_TRUE(vmap(sum, {.in_dims = {{0, 0, std::nullopt}}})(in).equal(in.first + in.second));
  const auto twice = [](const Tensor& x) { return Values{x, x}; };
  EXPECT_THAT(
      [&] {
        vmap(twice, {.out_dims = {{0, 0, -1}}})(random({4}));
      },
      ThrowsWith<c10::ValueError>("out_dims has dim -1"));
}

TEST_F(VmapOptionsTest, RefusesDimsOfNamesThatAreNotThere) {
  const auto f = [](const TensorDict& p) { return p["fc.w"] * p["fc.b"]; };
  const TensorDict p({{"fc.w", random({4})}, {"fc.b", random({4})}});
  EXPECT_THAT(
      [&] {
        vmap(f, {.in_dims = {by_name({{"fc", 0}, {"bias", 1}})}})(p);
      },
      ThrowsWith<c10::ValueError>("in_dims has dim 1"));
  EXPECT_TRUE(vmap(f, {.in_dims = {by_name({{"fc", 0}, {"bias", std::nullopt}})}})(p).equal(p["fc.w"] * p["fc.b"]));
}

TEST_F(VmapOptionsTest, TakesDimsOfATensorDictWithoutLeaves) {
  const auto f = [](const std::pair<TensorDict, TensorDict>& state) { return state.first["w"].sin(); };
  const std::pair state(TensorDict({{"w", random({4})}}), TensorDict());
  EXPECT_TRUE(vmap(f, {.in_dims = {{0, 0}}})(state).equal(state.first["w"].sin()));
}

TEST_F(VmapOptionsTest, MapsLeavesOfTensorDictsByName) {
  const auto f = [](const TensorDict& p) { return p["fc.w"].matmul(p["x"]) + p["fc.b"]; };
  const TensorDict p({{"fc.w", random({3, 2, 4})}, {"fc.b", random({2, 3})}, {"x", random({4})}});
  const InDims dims = {by_name({{"fc.b", 1}, {"fc", 0}, {"x", std::nullopt}})};
  const Tensor y = vmap(f, {.in_dims = dims})(p);
  EXPECT_TRUE(at::allclose(y, p["fc.w"].matmul(p["x"]) + p["fc.b"].t()));
  const TensorDict g = vmap(grad([&](const TensorDict& q) { return f(q).sum(); }), {.in_dims = dims})(p);
  EXPECT_EQ(g["x"].sizes(), (std::vector<int64_t>{3, 4}));
}

TEST_F(VmapOptionsTest, MapsFieldsOfStructs) {
  const auto f = [](const Sample& s) { return s.x * (s.weight ? *s.weight : 2 * s.extra.at("b")); };
  const Sample sample{random({3, 2}), std::nullopt, {{"a", random({5})}, {"b", random({2})}}};
  const InDims dims = {by_name({{"x", 0}, {"extra", std::nullopt}})};
  EXPECT_TRUE(vmap(f, {.in_dims = dims})(sample).equal(sample.x * 2 * sample.extra.at("b")));
}

TEST_F(VmapOptionsTest, PutsTheDimOfEachPartOfAResult) {
  const auto f = [](const Tensor& x) {
    return std::pair(std::vector<Tensor>{x, 2 * x}, std::tuple(x.sum(), at::ones({2})));
  };
  const Tensor x = random({3, 4});
  const auto [list, rest] = vmap(f, {.out_dims = {{0, 1}, {0, std::nullopt}}})(x);
  EXPECT_TRUE(list[0].equal(x) && list[1].equal(2 * x.t()));
  EXPECT_TRUE(std::get<0>(rest).equal(x.sum(1)) && std::get<1>(rest).equal(at::ones({2})));
}

TEST_F(VmapOptionsTest, SaysWhichPartHasNoDim) {
  const auto f = [](const TensorDict& p) { return p["a"]; };
  const TensorDict p({{"a", random({3})}, {"b", random({3})}});
  EXPECT_THAT(
      [&] {
        vmap(f, {.in_dims = {by_name({{"a", 0}})}})(p);
      },
      ThrowsWith<c10::ValueError>("in_dims has no dim for b"));
  EXPECT_THAT([&] { vmap(f, {.in_dims = {{0, 1}}})(p); }, ThrowsWith<c10::ValueError>("a list of 2 dims"));
  const auto g = [](const std::pair<Tensor, Tensor>& in) { return in.first; };
  const auto pair = std::pair(random({3}), random({3}));
  EXPECT_THAT([&] { vmap(g, {.in_dims = {{0}}})(pair); }, ThrowsWith<c10::ValueError>("a list of 1 dims", "element 1"));
  const TensorDict batched({{"a", random({3})}}, {3});
  EXPECT_THAT(
      [&] {
        vmap(f, {.in_dims = {by_name({{"a", 0}})}})(batched);
      },
      ThrowsWith<c10::ValueError>("with batch dims"));
}

// --- Chunks

TEST_F(VmapOptionsTest, ChunksGiveWhatTheWholeGives) {
  const auto f = [](const Tensor& x, const TensorDict& tree) {
    return std::tuple(x * tree["w"], TensorDict({{"s", x.sum()}}), at::ones({2}));
  };
  const Tensor x = random({4, 7});
  const TensorDict tree({{"w", random({7, 4})}}, {7});
  VmapOptions options{.in_dims = {-1, 0}, .out_dims = {1, 0, std::nullopt}};
  const auto whole = vmap(f, options)(x, tree);
  for (const int64_t chunk : {1, 2, 3, 7, 100}) {
    options.chunk_size = chunk;
    const auto parts = vmap(f, options)(x, tree);
    EXPECT_TRUE(std::get<0>(parts).equal(std::get<0>(whole))) << chunk;
    EXPECT_TRUE(equal(std::get<1>(parts), std::get<1>(whole))) << chunk;
    EXPECT_TRUE(std::get<2>(parts).equal(std::get<2>(whole))) << chunk;
  }
  options.chunk_size = 0;
  EXPECT_THAT([&] { vmap(f, options)(x, tree); }, ThrowsWith<c10::ValueError>("chunk_size is 0"));
}

TEST_F(VmapOptionsTest, AChunkSizeIsCheckedWhereThereAreNoSamplesToo) {
  const auto sin = [](const Tensor& x) { return x.sin(); };
  for (const int64_t chunk : {0, -1}) {
    EXPECT_THAT(
        [&] {
          vmap(sin, {.chunk_size = chunk})(random({0, 2}));
        },
        ThrowsWith<c10::ValueError>("chunk_size is " + std::to_string(chunk)));
  }
  EXPECT_EQ(vmap(sin, {.chunk_size = 1})(random({0, 2})).sizes(), (std::vector<int64_t>{0, 2}));
}

TEST_F(VmapOptionsTest, ChunksAreDifferentiated) {
  const auto loss = [](const Tensor& w, const Tensor& x) { return (w * x).sin().sum(); };
  const Tensor w = random({3}), x = random({5, 3});
  const VmapOptions whole{.in_dims = {std::nullopt, 0}};
  const VmapOptions chunked{.in_dims = {std::nullopt, 0}, .chunk_size = 2};
  EXPECT_TRUE(at::allclose(vmap(grad(loss), chunked)(w, x), vmap(grad(loss), whole)(w, x)));
  const auto total = [&](const Tensor& p) { return vmap(loss, chunked)(p, x).sum(); };
  EXPECT_TRUE(at::allclose(grad(total)(w), vmap(grad(loss), whole)(w, x).sum(0)));
}

TEST_F(VmapOptionsTest, ChunksDrawTheSameOrDifferentNumbers) {
  const auto f = [](const Tensor& x) { return x + at::rand({3}); };
  const Tensor x = at::zeros({5, 2}).narrow(1, 0, 1);
  const Tensor same = vmap(f, {.randomness = Randomness::kSame, .chunk_size = 2})(x);
  for (int64_t i = 1; i < 5; ++i) EXPECT_TRUE(same[i].equal(same[0]));
  const Tensor different = vmap(f, {.randomness = Randomness::kDifferent, .chunk_size = 2})(x);
  for (int64_t i = 1; i < 5; ++i) EXPECT_FALSE(different[i].equal(different[0]));
}

// --- No samples, and one

TEST_F(VmapOptionsTest, MapsOverNoSamplesAndOne) {
  const auto f = [](const Tensor& x, const Tensor& w) { return x.matmul(w).relu().sum(); };
  const Tensor w = random({3, 2});
  for (const int64_t size : {0, 1}) {
    const Tensor x = random({size, 4, 3});
    const VmapOptions options{.in_dims = {0, std::nullopt}};
    EXPECT_EQ(vmap(f, options)(x, w).sizes(), (std::vector<int64_t>{size}));
    EXPECT_EQ(vmap(grad<1>(f), options)(x, w).sizes(), (std::vector<int64_t>{size, 3, 2}));
  }
}

}  // namespace
}  // namespace graft
