// Derivatives worked out by hand: short functions at simple points, in cases that are easy to get wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "functional/grad.h"
#include "functional/jvp.h"
#include "functional/vjp.h"
#include "functional/with_aux.h"
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

Tensor scalar(double value) { return torch::tensor(value, torch::kDouble); }

double value_of(const Tensor& tensor) { return tensor.item<double>(); }

Tensor cube(const Tensor& v) { return v.pow(3); }

// --- Where nothing is to be recorded

TEST(NoGradTest, InsideTheFunctionMakesAConstant) {
  const auto f = [](const Tensor& v) {
    Tensor constant;
    {
      const torch::NoGradGuard no_grad;
      constant = v.square();
    }
    return v.square() - constant * v;
  };
  const auto [value, slope] = value_and_grad(f)(scalar(3));
  EXPECT_EQ(value_of(value), -18);
  EXPECT_EQ(value_of(slope), -3);  // 2 v - 9
}

TEST(NoGradTest, InsideAroundAnInnerDerivativeMakesThatAConstant) {
  const auto f = [](const Tensor& v) {
    Tensor constant;
    {
      const torch::NoGradGuard no_grad;
      constant = grad(cube)(v);
    }
    return constant * v;
  };
  EXPECT_EQ(value_of(grad(f)(scalar(3))), 27);
}

TEST(NoGradTest, AroundTheCallStopsNoDerivative) {
  const Tensor trained = scalar(3).requires_grad_(), x = numbers({1, 2}, {2});
  {
    const torch::NoGradGuard no_grad;
    const auto sine = [](const Tensor& v) { return v.sin(); };
    const Tensor slope = grad(sine)(trained);
    EXPECT_NEAR(value_of(slope), -0.9899924966004454, 1e-15);
    EXPECT_FALSE(slope.requires_grad());
    EXPECT_EQ(value_of(grad([](const Tensor& v) { return grad(cube)(v); })(trained)), 18);
    EXPECT_THAT(list_of(jacrev([](const Tensor& v) { return v.square(); })(x)), Near({2, 0, 0, 4}));
    EXPECT_NEAR(value_of(std::get<1>(vjp(sine, trained))(scalar(1))), -0.9899924966004454, 1e-15);
    EXPECT_THAT(list_of(vmap(grad(cube))(x)), Near({3, 12}));
    EXPECT_THAT(list_of(hessian([](const Tensor& v) { return cube(v).sum(); })(x)), Near({6, 0, 0, 12}));
    EXPECT_FALSE(torch::GradMode::is_enabled());
  }
  EXPECT_TRUE(torch::GradMode::is_enabled());
}

TEST(NoGradTest, OfInferenceModeStopsNoDerivative) {
  const c10::InferenceMode guard;
  EXPECT_NEAR(value_of(grad([](const Tensor& v) { return v.sin(); })(scalar(3))), -0.9899924966004454, 1e-15);
}

// --- Nested derivatives

TEST(NestedDerivativesTest, KeepTheirVariablesApart) {
  const auto inner = [](const Tensor& x) { return grad([&](const Tensor& y) { return y * (x - y); })(x); };
  EXPECT_EQ(value_of(inner(scalar(1))), -1);        // x - 2 y at y = x
  EXPECT_EQ(value_of(grad(inner)(scalar(1))), -1);  // 0 if x and y were taken for one
  const auto product = [](const Tensor& x) { return x * grad([&](const Tensor& y) { return x * y; })(scalar(2)); };
  EXPECT_EQ(value_of(grad(product)(scalar(1))), 2);
  EXPECT_EQ(value_of(jvp(product, scalar(1), scalar(1)).second), 2);
  const auto forward = [](const Tensor& x) {
    return jvp([&](const Tensor& y) { return y * x; }, scalar(5), scalar(1)).second;
  };
  EXPECT_EQ(value_of(grad(forward)(scalar(1))), 1);
}

// --- What does not depend on the argument

TEST(UnusedArgumentsTest, HaveDerivativesOfZerosInTheirShape) {
  const TensorDict tree({{"a", numbers({1, 2}, {2})}, {"unused", torch::ones({2, 3}, torch::kDouble)}});
  const TensorDict gradient = grad([](const TensorDict& p) { return p["a"].square().sum(); })(tree);
  EXPECT_THAT(list_of(gradient["a"]), Near({2, 4}));
  EXPECT_EQ(gradient["unused"].sizes(), Shape({2, 3}));
  EXPECT_THAT(list_of(gradient["unused"]), Near({0, 0, 0, 0, 0, 0}));

  const auto twice = [](const Tensor& a, const Tensor&) { return a * 2; };
  const auto results = vjp(twice, torch::ones({2}), torch::ones({3}));
  const auto [of_a, of_b] = std::get<1>(results)(torch::ones({2}));
  EXPECT_THAT(list_of(of_a), Near({2, 2}));
  EXPECT_THAT(list_of(of_b), Near({0, 0, 0}));
}

TEST(ConstantDerivativesTest, AreZerosOfTheRightShape) {
  const Tensor w = numbers({1, 2, 3, 4, 5, 6}, {3, 2}), x = numbers({1, 1}, {2});
  const auto linear = [&](const Tensor& v) { return w.matmul(v); };
  for (const Tensor& second : {jacrev(jacrev(linear))(x), jacfwd(jacrev(linear))(x)}) {
    EXPECT_EQ(second.sizes(), Shape({3, 2, 2}));
    EXPECT_THAT(list_of(second), Near(std::vector<double>(12, 0)));
  }
  EXPECT_THAT(list_of(hessian([&](const Tensor& v) { return linear(v).sum(); })(x)), Near({0, 0, 0, 0}));
  const Tensor of_constant = jacrev([](const Tensor&) { return torch::ones({4}, torch::kDouble); })(x);
  EXPECT_EQ(of_constant.sizes(), Shape({4, 2}));
  EXPECT_THAT(list_of(of_constant), Near(std::vector<double>(8, 0)));
  const auto tree = [](const Tensor& v) { return TensorDict({{"sum", v.sum()}, {"constant", scalar(3)}}); };
  const TensorDict jacobian = jacrev(tree)(x);
  EXPECT_THAT(list_of(jacobian["sum"]), Near({1, 1}));
  EXPECT_THAT(list_of(jacobian["constant"]), Near({0, 0}));
}

TEST(IntegerArgumentsTest, HaveNoDerivative) {
  const auto f = [](const Tensor& v, const Tensor&) { return (v * 2).sum(); };
  EXPECT_THROW(grad<1>(f)(torch::ones({2}), torch::tensor({1, 2})), c10::TypeError);
}

// --- Several arguments and results

TEST(SeveralArgumentsTest, AreDifferentiatedByNumberWithAPlainAuxiliaryResult) {
  const TensorDict params({{"w", numbers({2, -1}, {2})}});
  const Tensor b = scalar(0.5), x = numbers({3, 4}, {2});
  const auto f = [](const TensorDict& p, const Tensor& bias, const Tensor& input) {
    const Tensor y = (p["w"] * input).sum() + bias;
    return std::pair<Tensor, TensorDict>(y.square(), {{"y", y}, {"w", p["w"]}});
  };
  const auto [result, gradients] = value_and_grad<0, 2>(f)(params, b, x);
  const auto& [value, aux] = result;
  EXPECT_EQ(value_of(value), 6.25);
  EXPECT_THAT(list_of(std::get<0>(gradients)["w"]), Near({15, 20}));
  EXPECT_THAT(list_of(std::get<1>(gradients)), Near({10, -5}));
  EXPECT_EQ(value_of(aux["y"] + 1), 3.5);
  EXPECT_FALSE((aux["y"] + 1).requires_grad());
  EXPECT_THAT(list_of(aux["w"]), Near({2, -1}));

  const auto last = [](const Tensor& a, const Tensor& c) { return (a * c.square()).sum(); };
  EXPECT_EQ(value_of(grad<-1>(last)(scalar(2), scalar(3))), 12);
}

TEST(SeveralArgumentsTest, HaveJacobiansByNumberToo) {
  const TensorDict params({{"w", numbers({2, -1}, {2})}});
  const Tensor x = numbers({3, 4}, {2});
  const auto product = [](const TensorDict& p, const Tensor& input) { return p["w"] * input; };
  const auto [by_w, by_x] = jacrev<0, 1>(product)(params, x);
  EXPECT_THAT(list_of(by_w["w"]), Near({3, 0, 0, 4}));
  EXPECT_THAT(list_of(by_x), Near({2, 0, 0, -1}));
  const auto with_sum = [](const Tensor& v) { return WithAux{v.square(), Tensor(v.sum())}; };
  const auto [jacobian, sum] = jacfwd(with_sum)(x);
  EXPECT_THAT(list_of(jacobian), Near({6, 0, 0, 8}));
  EXPECT_EQ(value_of(sum), 7);
}

// --- Second derivatives

TEST(HessianTest, OfEachSampleIsTheSameByEveryComposition) {
  const Tensor a = numbers({0.1, 0.2, 0.3, -0.1, 0, 1, 1, 0, 2, 0, 0, 0.5}, {3, 2, 2});
  const Tensor x = torch::arange(24, torch::kDouble).remainder(5).view({3, 4, 2});
  const auto loss = [](const Tensor& matrix, const Tensor& points) {
    return (points - points.matmul(matrix.t())).square().sum();
  };
  // 2 x^T x by a row of the matrix twice, zeros by two rows.
  const std::vector<std::vector<double>> blocks{{42, 16, 16, 28}, {58, 36, 36, 52}, {28, 40, 40, 60}};
  for (const Tensor& h : {vmap(hessian(loss))(a, x), vmap(jacrev(jacrev(loss)))(a, x), vmap(jacfwd(jacfwd(loss)))(a, x),
                          vmap(jacrev(jacfwd(loss)))(a, x)}) {
    ASSERT_EQ(h.sizes(), Shape({3, 2, 2, 2, 2}));
    for (int sample = 0; sample < 3; ++sample) {
      for (int row = 0; row < 2; ++row) {
        for (int other = 0; other < 2; ++other) {
          const auto expected = row == other ? blocks[sample] : std::vector<double>(4, 0);
          EXPECT_THAT(list_of(h.index({sample, row, Slice(), other})), Near(expected));
        }
      }
    }
  }
}

TEST(HessianTest, OfATreeHasABlockForEachPairOfLeaves) {
  const TensorDict tree({{"a", numbers({1, 2}, {2})}, {"b", numbers({3, 4}, {2})}});
  const TensorDict h = hessian([](const TensorDict& p) { return (p["a"] * p["b"].square()).sum(); })(tree);
  EXPECT_THAT(list_of(h["a.a"]), Near({0, 0, 0, 0}));
  EXPECT_THAT(list_of(h["a.b"]), Near({6, 0, 0, 8}));
  EXPECT_THAT(list_of(h["b.a"]), Near({6, 0, 0, 8}));
  EXPECT_THAT(list_of(h["b.b"]), Near({2, 0, 0, 4}));
}

TEST(HessianTest, OfASumOfSquaresIsFiniteAtZero) {
  const auto bell = [](const Tensor& d) { return (-d.square().sum() / 8).exp(); };
  EXPECT_THAT(list_of(hessian(bell)(torch::zeros({3}, torch::kDouble))), Near({-0.25, 0, 0, 0, -0.25, 0, 0, 0, -0.25}));
}

// --- Kinks

TEST(KinkTest, HasTheDerivativeBetweenThoseOfItsSides) {
  EXPECT_EQ(value_of(grad([](const Tensor& v) { return v.relu(); })(scalar(0))), 0);
  EXPECT_EQ(value_of(grad([](const Tensor& v) { return v.abs(); })(scalar(0))), 0);
  EXPECT_THAT(list_of(grad([](const Tensor& v) { return v.max(); })(numbers({1, 1}, {2}))), Near({0.5, 0.5}));
  EXPECT_THAT(list_of(grad([](const Tensor& v) { return v.amax(); })(numbers({1, 1}, {2}))), Near({0.5, 0.5}));
}

TEST(KinkTest, BehindWhereNeedsAGuardOfTheBranchThatIsNotTaken) {
  const Tensor x = numbers({0, 4}, {2});
  const auto guarded_once = [](const Tensor& v) { return torch::where(v > 0, v.sqrt(), torch::zeros_like(v)); };
  const auto guarded_twice = [](const Tensor& v) {
    return torch::where(v > 0, torch::where(v > 0, v, torch::ones_like(v)).sqrt(), torch::zeros_like(v));
  };
  const auto once = list_of(vmap(grad(guarded_once))(x));
  EXPECT_TRUE(std::isnan(once[0]));  // 0 times the infinite slope of the root
  EXPECT_EQ(once[1], 0.25);
  EXPECT_THAT(list_of(vmap(grad(guarded_twice))(x)), Near({0, 0.25}));
}

// --- In place, and out of the function

/// [t_0^2 + t_1^2 + 36, v_2^3], with t the first two elements of v.
template <class Write>
auto squares_and_cube(const Write& write) {
  return [&write](const Tensor& v) { return torch::stack({write(v).square().sum(), v[2].pow(3)}); };
}

TEST(JacobianInPlaceTest, IsRightForATensorMadeInsideTheFunction) {
  const auto write = [](const Tensor& v) {
    const Tensor t = torch::zeros({3}, torch::kDouble);
    t.slice(0, 0, 2).copy_(v.slice(0, 0, 2));
    t[2].fill_(6);
    return t;
  };
  const Tensor x = numbers({1, 2, 3}, {3});
  EXPECT_THAT(list_of(jacrev(squares_and_cube(write))(x)), Near({2, 4, 0, 0, 0, 27}));
  EXPECT_THAT(list_of(jacfwd(squares_and_cube(write))(x)), Near({2, 4, 0, 0, 0, 27}));
}

TEST(JacobianInPlaceTest, IsRefusedForACapturedTensor) {
  const Tensor captured = numbers({4, 5, 6}, {3});
  const auto write = [&](const Tensor& v) {
    captured.slice(0, 0, 2).copy_(v.slice(0, 0, 2));
    return captured;
  };
  const Tensor x = numbers({1, 2, 3}, {3});
  EXPECT_THROW(jacrev(squares_and_cube(write))(x), c10::Error);
  EXPECT_THROW(jacfwd(squares_and_cube(write))(x), c10::Error);
  EXPECT_THAT(list_of(captured + 1), Near({5, 6, 7}));
}

TEST(JacobianInPlaceTest, IsRefusedForTheArgument) {
  const Tensor x = numbers({1, 2, 3}, {3});
  EXPECT_THROW(grad([](const Tensor& v) { return v.mul_(2).square().sum(); })(x), c10::Error);
  EXPECT_THAT(list_of(x), Near({1, 2, 3}));
}

TEST(EscapedValueTest, OfADerivativeIsAPlainNumber) {
  Tensor kept;
  const auto f = [&](const Tensor& v) {
    kept = v * 2;
    return v.square();
  };
  EXPECT_EQ(value_of(grad(f)(scalar(3))), 6);
  EXPECT_EQ(value_of(kept + 1), 7);
  EXPECT_FALSE((kept + 1).requires_grad());
}

TEST(NumbersMadeInsideTest, ComeFromAListAndNotFromAVector) {
  const Tensor x = numbers({3, 4}, {2});
  const auto by_list = [](const Tensor& v) { return (v * torch::tensor({1., 2.}, torch::kDouble)).sum(); };
  EXPECT_THAT(list_of(grad(by_list)(x)), Near({1, 2}));
  const std::vector<double> factors{1, 2};
  const auto by_vector = [&](const Tensor& v) { return (v * torch::tensor(factors, torch::kDouble)).sum(); };
  EXPECT_THAT([&] { grad(by_vector)(x); }, ThrowsWith<c10::Error>("data pointer"));
}

// --- Products with the Jacobian

Tensor three_of_two(const Tensor& v) { return torch::stack({v[0] * v[1], v[0].square(), v.sin().sum()}); }

TEST(PullbackTest, IsCalledAgainAndAgainAfterItsScope) {
  const auto make = [] { return std::get<1>(vjp(three_of_two, numbers({1, 2}, {2}))); };
  const auto pullback = make();
  EXPECT_THAT(list_of(pullback(numbers({1, 0, 0}, {3}))), Near({2, 1}));
  EXPECT_THAT(list_of(pullback(numbers({0, 1, 0}, {3}))), Near({2, 0}));
  EXPECT_THAT(list_of(pullback(numbers({1, 0, 0}, {3}))), Near({2, 1}));
  EXPECT_THAT(list_of(pullback(numbers({0.5, -1, 2}, {3}))), Near({0.08060461173627953, -0.3322936730942848}));
  EXPECT_THAT(list_of(vmap(pullback)(torch::eye(3, torch::kDouble))),
              Near({2, 1, 2, 0, 0.5403023058681398, -0.4161468365471424}));
  EXPECT_THROW(pullback(numbers({1, 1}, {2})), c10::ValueError);
}

TEST(PullbackTest, IsDifferentiatedByTheCotangentAndByThePoint) {
  const Tensor x = numbers({1, 2}, {2}), row = numbers({1, 0, 0}, {3});
  const auto by_cotangent = [&](const Tensor& c) { return std::get<1>(vjp(three_of_two, x))(c).square().sum(); };
  EXPECT_THAT(list_of(grad(by_cotangent)(numbers({1, 1, 0}, {3}))), Near({18, 16, 3.4901247738508334}));
  const auto by_point = [&](const Tensor& v) { return std::get<1>(vjp(three_of_two, v))(row).square().sum(); };
  EXPECT_THAT(list_of(grad(by_point)(x)), Near({2, 4}));
}

TEST(TangentKernelTest, FromProductsEqualsThatFromJacobians) {
  const TensorDict params({{"w", numbers({1, 0.5, -1, 2}, {2, 2})}, {"b", numbers({0.1, -0.2}, {2})}});
  const auto layer = [](const TensorDict& p, const Tensor& x) { return (x.matmul(p["w"]) + p["b"]).sigmoid(); };
  const Tensor x = numbers({1, 0, 2, -1, 0, 0.5}, {3, 2}), y = numbers({1, 1, -1, 0.5}, {2, 2});
  // Between two points the kernel is diagonal; here are its diagonals.
  const std::vector<double> diagonals{0.0934511172,
                                      0.040491863,
                                      0,
                                      0,
                                      0.0205730343,
                                      0.0294662811,
                                      -0.0098183946,
                                      -0.0652316619,
                                      0.0898729101,
                                      0.0265738627,
                                      0.0476571898,
                                      0.0653650041};
  const auto expected = Near(list_of(numbers(diagonals, {3, 2, 2}).diag_embed()), 1e-10);

  const auto of_pair = [&](const Tensor& x1, const Tensor& x2) {
    const auto at = [&](const Tensor& point) { return [&](const TensorDict& p) { return layer(p, point); }; };
    const auto pullback = std::get<1>(vjp(at(x1), params));
    const auto row = [&](const Tensor& c) { return jvp(at(x2), params, pullback(c)).second; };
    return vmap(row)(torch::eye(2, torch::kDouble));
  };
  const auto of_one = vmap(of_pair, {.in_dims = {kNotMapped, 0}});
  const Tensor kernel = vmap(of_one, {.in_dims = {0, kNotMapped}})(x, y);
  ASSERT_EQ(kernel.sizes(), Shape({3, 2, 2, 2}));
  EXPECT_THAT(list_of(kernel), expected);

  const auto explicit_kernel = [&](const auto& jacobian) {
    const auto mapped = vmap(jacobian, {.in_dims = {kNotMapped, 0}});
    const TensorDict of_x = mapped(params, x), of_y = mapped(params, y);
    Tensor sum = torch::zeros({3, 2, 2, 2}, torch::kDouble);
    for (const auto& [path, leaf] : of_x.leaves()) {
      sum += torch::einsum("aip,bjp->abij", {leaf.flatten(2), of_y[path].flatten(2)});
    }
    return sum;
  };
  EXPECT_THAT(list_of(explicit_kernel(jacrev(layer))), expected);
  EXPECT_THAT(list_of(explicit_kernel(jacfwd(layer))), expected);
}

}  // namespace graft::testing
