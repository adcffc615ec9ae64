#include "tensordict/pack.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "functional/grad.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;

TensorDict example() {
  return TensorDict({{"w", at::arange(12, at::kDouble).view({2, 2, 3})},
                     {"a.s", at::tensor({90., 91.})},
                     {"z", at::zeros({2, 0}, at::kDouble)}},
                    {2});
}

TEST(PackTest, PutsTheLeavesOfEachSampleInARow) {
  const at::Tensor flat = pack(example());
  EXPECT_TRUE(at::equal(flat, at::tensor({0., 1., 2., 3., 4., 5., 90., 6., 7., 8., 9., 10., 11., 91.}).view({2, 7})));
  EXPECT_THAT(unpack(flat, example()), TensorDictEq(example()));
}

TEST(PackTest, WithoutBatchDimsGivesOneVector) {
  TensorDict td = example();
  td.set_batch_size({});
  EXPECT_EQ(pack(td).sizes(), (std::vector<int64_t>{14}));
  EXPECT_THAT(unpack(pack(td), td), TensorDictEq(td));
}

TEST(PackTest, OfATreeWithoutLeavesIsEmpty) {
  EXPECT_EQ(pack(TensorDict(std::vector<int64_t>{3})).sizes(), (std::vector<int64_t>{3, 0}));
  EXPECT_TRUE(unpack(at::zeros({3, 0}), TensorDict()).empty());
}

TEST(PackTest, KeepsTheBatchDimsOfParts) {
  TensorDict td({{"n.x", at::arange(12, at::kDouble).view({2, 3, 2})}}, {2});
  td.set_batch_size("n", {2, 3});
  EXPECT_EQ(pack(td).sizes(), (std::vector<int64_t>{2, 6}));
  const TensorDict back = unpack(pack(td), td);
  EXPECT_EQ(back.batch_size("n"), (std::vector<int64_t>{2, 3}));
}

TEST(PackTest, ListsEveryLeafOfAnotherKind) {
  const TensorDict td({{"a", at::zeros({2})}, {"b", at::zeros({2}, at::kDouble)}, {"c", at::zeros({2}, at::kMeta)}});
  EXPECT_THAT([&] { pack(td); }, ThrowsWith<c10::ValueError>("\"b\": double", "\"c\"", "meta", "\"a\""));
}

TEST(UnpackTest, GivesViews) {
  const at::Tensor flat = at::zeros({2, 7});
  const TensorDict views = unpack(flat, example());
  flat.fill_(3);
  EXPECT_EQ(views["w"].sum().item<double>(), 36);
  EXPECT_TRUE(unpack(at::zeros({7, 2}).t(), example())["w"].is_alias_of(views["w"]) == false);
  const at::Tensor columns = at::zeros({7, 2});
  EXPECT_TRUE(unpack(columns.t(), example())["w"].is_alias_of(columns));
}

TEST(UnpackTest, TakesAStackOfVectors) {
  const TensorDict stacked = unpack(at::arange(70, at::kDouble).view({5, 2, 7}), example());
  EXPECT_EQ(stacked.batch_size(), (std::vector<int64_t>{5, 2}));
  EXPECT_EQ(stacked["w"].sizes(), (std::vector<int64_t>{5, 2, 2, 3}));
  EXPECT_EQ(stacked["a.s"][1][0].item<double>(), 20);
}

TEST(UnpackTest, RefusesAnotherLength) {
  EXPECT_THAT([] { unpack(at::zeros({2, 8}), example()); }, ThrowsWith<c10::ValueError>("[2, 8]", "expected 7"));
  EXPECT_THAT([] { unpack(at::zeros({}), example()); }, ThrowsWith<c10::ValueError>("without dims"));
}

TEST(PackTest, LetsGradientsThroughBothWaysAlsoUnderTransforms) {
  const TensorDict td({{"w", at::rand({2, 3}, at::kDouble)}, {"b", at::rand({}, at::kDouble)}});
  const auto sum_of_squares = [&](const TensorDict& p) {
    const TensorDict back = unpack(pack(p) * 2, p);
    return back["w"].square().sum() + back["b"].square();
  };
  const TensorDict expected = td.map([](const at::Tensor& leaf) { return leaf * 8; });
  EXPECT_THAT(grad(sum_of_squares)(td), testing::TensorDictNear(expected, 1e-12));
  const TensorDict three = td.map([](const at::Tensor& leaf) { return at::stack({leaf, leaf, leaf}); });
  const TensorDict each = vmap(grad(sum_of_squares))(three);
  EXPECT_TRUE(at::allclose(each["w"][2], expected["w"]));
}

}  // namespace
}  // namespace graft
