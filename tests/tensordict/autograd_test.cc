#include "tensordict/autograd.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::TensorDictNear;
using testing::ThrowsWith;

at::Tensor leaf(double value) { return at::full({2}, value, at::kDouble).requires_grad_(); }

TensorDict inputs() { return TensorDict({{"x", leaf(3)}, {"n.y", leaf(5)}}, {2}); }

TensorDict expected(double x, double y) {
  return TensorDict({{"x", at::full({2}, x, at::kDouble)}, {"n.y", at::full({2}, y, at::kDouble)}}, {2});
}

TEST(GradientsTest, AreThoseOfTheSumOfAllOutputs) {
  const TensorDict in = inputs();
  const TensorDict losses(
      {{"product", (in["x"] * in["n.y"]).sum()}, {"square", in["x"].square().sum()}, {"constant", at::ones({4})}});
  EXPECT_THAT(gradients(losses, in, {.retain_graph = true}), TensorDictEq(expected(5 + 6, 3)));
  EXPECT_THAT(gradients(losses["product"], in), TensorDictEq(expected(5, 3)));
  EXPECT_FALSE(in["x"].grad().defined());
}

TEST(GradientsTest, OutputsAreMultipliedByTheirFactors) {
  const TensorDict in = inputs();
  const TensorDict out({{"a", in["x"] * in["n.y"]}, {"b", in["x"].sum()}});
  const TensorDict factors({{"other", at::ones({7})}, {"a", at::tensor({2., 2.})}});
  EXPECT_THAT(gradients(out, in, {.grad_outputs = &factors}), TensorDictEq(expected(10 + 1, 6)));
}

TEST(GradientsTest, CanBeDifferentiatedAgain) {
  const TensorDict in = inputs();
  const at::Tensor loss = (in["x"].pow(3) * in["n.y"]).sum();
  const TensorDict first = gradients(loss, in, {.create_graph = true});
  EXPECT_THAT(gradients(first["x"].sum(), in), TensorDictEq(expected(6 * 3 * 5, 3 * 9)));
}

TEST(GradientsTest, AnInputUnderTwoNamesGetsItsWholeGradientTwice) {
  const at::Tensor x = leaf(3);
  const TensorDict tied({{"a", x}, {"b", x}});
  const TensorDict got = gradients((tied["a"] * tied["b"]).sum(), tied);
  EXPECT_TRUE(got["a"].equal(at::full({2}, 6., at::kDouble)));
  EXPECT_TRUE(got["b"].equal(got["a"]));
}

TEST(GradientsTest, LeavesThatDoNotFitAreListed) {
  const TensorDict in({{"x", leaf(3)}, {"plain", at::ones({2})}, {"whole", at::ones({2}, at::kLong)}});
  const TensorDict out({{"a", in["x"] * 2}, {"b", in["x"] * 3}, {"c", in["x"] * 4}});
  const TensorDict factors({{"a", at::ones({2})}, {"b", at::ones({3})}});
  EXPECT_THAT([&] { gradients(out, in, {.grad_outputs = &factors}); },
              ThrowsWith<c10::ValueError>("gradients", "input \"plain\"", "input \"whole\"",
                                          "grad_outputs \"b\": shape [3], expected [2]", "output \"c\": shape [2]"));
}

TEST(GradientsTest, InputsThatTheOutputsDoNotDependOnAreListedOrGiveZeros) {
  const TensorDict in({{"x", leaf(3)}, {"n.y", leaf(5)}, {"z", leaf(1)}});
  const auto loss = [&] { return in["x"].sum(); };
  EXPECT_THAT([&] { gradients(loss(), in); }, ThrowsWith<c10::ValueError>("depend", "\"n.y\"", "\"z\""));
  const TensorDict got = gradients(loss(), in, {.materialize_grads = true});
  EXPECT_TRUE(got["x"].equal(at::ones({2}, at::kDouble)));
  EXPECT_TRUE(got["z"].equal(at::zeros({2}, at::kDouble)));
  EXPECT_TRUE(gradients(at::ones({}), in, {.materialize_grads = true})["x"].equal(got["z"]));
  EXPECT_TRUE(gradients(loss(), TensorDict()).empty());
}

TEST(BackwardTest, AddsToTheGradientsOfTheLeaves) {
  const TensorDict in = inputs();
  backward(TensorDict({{"a", in["x"].sum()}, {"b", (in["x"] * in["n.y"]).sum()}, {"constant", at::ones({3})}}));
  EXPECT_TRUE(in["x"].grad().equal(at::full({2}, 6., at::kDouble)));
  EXPECT_TRUE(in["n.y"].grad().equal(at::full({2}, 3., at::kDouble)));
  const TensorDict factors({{"a", at::tensor({1., 2.})}});
  const TensorDict only_x({{"x", in["x"]}});
  backward(TensorDict({{"a", in["x"] * in["n.y"]}}), {.grad_outputs = &factors, .inputs = &only_x});
  EXPECT_TRUE(in["x"].grad().equal(at::tensor({11., 16.})));
  EXPECT_TRUE(in["n.y"].grad().equal(at::full({2}, 3., at::kDouble)));
}

TEST(BackwardTest, OutputsThatDoNotFitAreListedAndNothingIsAdded) {
  const TensorDict in = inputs();
  const TensorDict out({{"a", in["x"] * 2}, {"b", in["x"].sum()}, {"n.c", in["x"] * 3}});
  EXPECT_THAT([&] { backward(out); },
              ThrowsWith<c10::ValueError>("backward", "output \"a\": shape [2]", "output \"n.c\": shape [2]"));
  EXPECT_THAT([&] { backward(TensorDict({{"a", at::ones({})}})); }, ThrowsWith<c10::ValueError>("backward", "no leaf"));
  EXPECT_FALSE(in["x"].grad().defined());
}

TEST(AutogradLeavesTest, RequiresGradIsAllOrNothing) {
  const TensorDict td({{"a", at::full({2}, 3.)}, {"b", at::full({2}, 3, at::kLong)}}, {2});
  EXPECT_THAT([&] { requires_grad_(td); }, ThrowsWith<c10::ValueError>("\"b\"", "dtype long"));
  EXPECT_FALSE(td["a"].requires_grad());
  EXPECT_FALSE(requires_grad(td));
  EXPECT_TRUE(requires_grad_(TensorDict({{"b", at::ones({2})}}))["b"].requires_grad());
  td["a"].requires_grad_();
  EXPECT_TRUE(requires_grad(td));
  const TensorDict computed({{"x", td["a"] * 2}, {"y", td["a"]}, {"z", td["a"] + 1}});
  EXPECT_THAT([&] { requires_grad_(computed, false); }, ThrowsWith<c10::ValueError>("\"x\"", "\"z\"", "detach"));
  EXPECT_TRUE(td["a"].requires_grad());
  EXPECT_FALSE(requires_grad(requires_grad_(td, false)));
}

TEST(AutogradLeavesTest, GradHoldsTheLeavesThatHaveOne) {
  TensorDict td({{"a", at::ones({2}).requires_grad_()}, {"b", at::ones({2}).requires_grad_()}, {"c", at::ones({2})}},
                {2});
  EXPECT_TRUE(grad(td).empty());
  const at::Tensor product = td["a"] * 3;
  product.sum().backward();
  td.set("d", product);  // no leaf of autograd
  const TensorDict got = grad(td);
  EXPECT_THAT(got, TensorDictEq(TensorDict({{"a", at::full({2}, 3.)}}, {2})));
  EXPECT_TRUE(got["a"].is_same(td["a"].grad()));
  EXPECT_TRUE(grad(td.lock_()).is_locked());
  EXPECT_EQ(&zero_grad(td, /*set_to_none=*/false), &td);
  EXPECT_TRUE(td["a"].grad().equal(at::zeros({2})));
  zero_grad(td);
  EXPECT_FALSE(td["a"].grad().defined());
}

TEST(AutogradLeavesTest, LeavesOfInferenceModeAreListedBeforeAnyFlagIsSet) {
  at::Tensor made;
  {
    const c10::InferenceMode inference;
    made = at::ones({2});
  }
  const TensorDict td({{"a", at::ones({2})}, {"b", made}});
  EXPECT_THAT([&] { requires_grad_(td); }, ThrowsWith<c10::ValueError>("requires_grad_", "\"b\""));
  EXPECT_FALSE(td["a"].requires_grad());
}

TEST(BackwardTest, AComplexOutputNeedsItsFactor) {
  const at::Tensor z = at::ones({}, at::kComplexDouble).requires_grad_();
  EXPECT_THAT([&] { backward(TensorDict({{"out", z * 2}})); }, ThrowsWith<c10::ValueError>("output \"out\": complex"));
}

}  // namespace
}  // namespace graft
