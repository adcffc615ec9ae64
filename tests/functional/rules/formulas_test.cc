// Short formulas and compositions under every transform.
#include <ATen/ATen.h>
#include <ATen/functorch/DynamicLayer.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "functional/grad.h"
#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

TEST(FormulasTest, GluIsRight) {
  check_set_ups({.name = "glu",
                 .f = [](auto& in) { return at::glu(in[0], 1); },
                 .make =
                     [] {
                       return Tensors{random({2, 4})};
                     }});
  check_set_ups({.name = "glu of the last dim",
                 .f = [](auto& in) { return at::glu(in[0]); },
                 .make = [] { return Tensors{random({2})}; }});
}

TEST(FormulasTest, RreluIsRightInEvaluation) {
  const auto make = [] { return Tensors{random({2, 3})}; };
  check_set_ups({.name = "rrelu", .f = [](auto& in) { return at::rrelu(in[0], 0.1, 0.4); }, .make = make});
  check_set_ups({.name = "rrelu_",
                 .f =
                     [](auto& in) {
                       Tensor out = in[0] * 1;
                       return at::rrelu_(out, 0.1, 0.4);
                     },
                 .make = make},
                {{"e2", "throws: vmap: "}});  // a tangent that is not mapped cannot hold what is
}

TEST(FormulasTest, RreluInTrainingDrawsWhatTheLoopDraws) {
  for (const bool is_in_place : {false, true}) {
    const auto f = [=](const Tensor& x) {
      at::manual_seed(0);
      Tensor y = x * 1;
      return is_in_place ? at::rrelu_(y, 0.1, 0.4, /*training=*/true) : at::rrelu(y, 0.1, 0.4, /*training=*/true);
    };
    const auto loss = [=](const Tensor& x) { return f(x).square().sum(); };
    const Tensor x = random({3, 2, 4});
    const VmapOptions same = {.randomness = Randomness::kSame};
    const Tensor y = vmap(f, same)(x), gradients = vmap(grad(loss), same)(x);
    for (int64_t i = 0; i < x.size(0); ++i) {
      const Tensor leaf = x[i].clone().set_requires_grad(true);
      EXPECT_TRUE(y[i].equal(f(x[i])));
      EXPECT_TRUE(gradients[i].allclose(torch::autograd::grad({loss(leaf)}, {leaf})[0]));
    }
  }
}

TEST(FormulasTest, RreluInTrainingLeavesTheGeneratorAsLibTorchDoesIfItIsNotMapped) {
  const Tensor x = random({5});
  const auto then_draw = [](const Tensor& in) {
    return at::rrelu(in, 0.1, 0.4, /*training=*/true).sum() + at::rand({});
  };
  at::manual_seed(0);
  const Tensor expected = then_draw(x);
  at::manual_seed(0);
  EXPECT_TRUE(value_and_grad(then_draw)(x).first.equal(expected));
}

TEST(FormulasTest, RreluInTrainingNeedsToKnowHowToDraw) {
  const auto f = [](const Tensor& x) { return at::rrelu(x, 0.1, 0.4, /*training=*/true); };
  EXPECT_THAT([&] { vmap(f)(random({2, 3})); }, ThrowsWith<std::exception>("randomness"));
  const Tensor y = vmap(f, {.randomness = Randomness::kDifferent})(at::full({2, 3}, -1., at::kDouble));
  EXPECT_FALSE(y[0].equal(y[1]));
}

TEST(FormulasTest, MishIsRight) {
  check_set_ups({.name = "mish",
                 .f = [](auto& in) { return at::mish(in[0]); },
                 .make =
                     [] {
                       return Tensors{random({2, 3})};
                     }});
}

TEST(FormulasTest, RenormIsRight) {
  for (const double p : {1., 2.}) {
    check_set_ups({.name = "renorm",
                   .f = [p](auto& in) { return at::renorm(in[0], p, -2, 1.2); },
                   .make =
                       [] {
                         return Tensors{random({2, 3, 2}) * at::tensor({1., 0.1, 2.}, at::kDouble).unsqueeze(1)};
                       }});
  }
}

TEST(FormulasTest, AddrIsRight) {
  const auto make = [] { return Tensors{random({2, 3}), random({2}), random({3})}; };
  check_set_ups({.name = "addr",
                 .f = [](auto& in) { return at::addr(in[0], in[1], in[2], 0.5, 2); },
                 .make = make,
                 .differentiable = 3});
  check_set_ups({.name = "addr_",
                 .f = [](auto& in) { return in[0].clone().addr_(in[1], in[2]); },
                 .make = make,
                 .differentiable = 3},
                // Neither the matrix nor its tangent can hold what is mapped, if they are not.
                {{"b2", "throws: vmap: "}, {"e2", "throws: vmap: "}});
}

/// Returns vander under transforms; without any a product of powers, because the graph of LibTorch's own vander holds
/// itself and is never freed.
Tensor vander_or_powers(const Tensor& x, std::optional<int64_t> columns, bool increasing) {
  if (at::functorch::maybeCurrentDynamicLayer()) return at::vander(x, columns, increasing);
  Tensors powers;
  for (int64_t i = 0; i < columns.value_or(x.numel()); ++i) powers.push_back(x.pow(i));
  if (powers.empty()) return (x * 1).unsqueeze(1).narrow(1, 0, 0);
  if (!increasing) std::reverse(powers.begin(), powers.end());
  return at::stack(powers, 1);
}

TEST(FormulasTest, VanderIsRight) {
  for (const bool increasing : {false, true}) {
    for (const std::optional<int64_t>& columns :
         {std::optional<int64_t>(), std::optional<int64_t>(0), std::optional<int64_t>(5)}) {
      check_set_ups({.name = "vander",
                     .f = [=](auto& in) { return vander_or_powers(in[0], columns, increasing); },
                     .make = [] { return Tensors{random({3})}; }});
    }
  }
  check_set_ups({.name = "vander of integers",
                 .f = [](auto& in) { return at::vander(in[0], 4).to(at::kDouble); },
                 .make = [] { return Tensors{at::randint(-3, 4, {3}, at::kInt)}; },
                 .differentiable = 0});
}

TEST(FormulasTest, IscloseIsRight) {
  check_set_ups({.name = "isclose",
                 .f = [](auto& in) { return at::isclose(in[0], in[1], 0.1, 0.3).to(at::kDouble); },
                 .make =
                     [] {
                       return Tensors{random({8}), random({8})};
                     },
                 .differentiable = 0});
}

TEST(FormulasTest, CompositionsOfLinearAlgebraAreRight) {
  check_set_ups({.name = "chain_matmul",
                 .f =
                     [](auto& in) {
                       return at::chain_matmul({in[0], in[1], in[2]});
                     },
                 .make =
                     [] {
                       return Tensors{random({2, 3}), random({3, 4}), random({4, 2})};
                     },
                 .differentiable = 3});
  check_set_ups(
      {.name = "linalg_tensorsolve",
       .f = [](auto& in) { return at::linalg_tensorsolve(in[0], in[1]); },
       .make =
           [] {
             return Tensors{random({2, 2, 4}) + 5 * at::eye(4, at::kDouble).reshape({2, 2, 4}), random({2, 2})};
           },
       .differentiable = 2});
}

TEST(FormulasTest, LinalgSolveIsRight) {
  const auto matrices = [](std::vector<int64_t> batch) {
    batch.insert(batch.end(), {3, 3});
    return random(batch) + 4 * at::eye(3, at::kDouble);
  };
  const auto solve = [](const Tensors& in) { return at::linalg_solve(in[0], in[1]); };
  check_set_ups({.name = "linalg_solve of a vector",
                 .f = solve,
                 .make =
                     [&] {
                       return Tensors{matrices({}), random({3})};
                     },
                 .differentiable = 2});
  check_set_ups({.name = "linalg_solve of vectors",
                 .f = solve,
                 .make =
                     [&] {
                       return Tensors{matrices({2}), random({2, 3})};
                     },
                 .differentiable = 2});
  check_set_ups({.name = "linalg_solve of matrices on the left",
                 .f = [](auto& in) { return at::linalg_solve(in[0], in[1], /*left=*/false); },
                 .make =
                     [&] {
                       return Tensors{matrices({2}), random({2, 4, 3})};
                     },
                 .differentiable = 2});
}

TEST(FormulasTest, TriangularFactorsAreRight) {
  const auto matrix = [] { return random({3, 3}) + 4 * at::eye(3, at::kDouble); };
  for (const bool upper : {false, true}) {
    check_set_ups({.name = "cholesky_inverse",
                   .f = [=](auto& in) { return at::cholesky_inverse(in[0], upper); },
                   .make = [&] { return Tensors{matrix()}; }});
    for (const bool transpose : {false, true}) {
      check_set_ups({.name = "triangular_solve",
                     .f = [=](auto& in) { return std::get<0>(at::triangular_solve(in[0], in[1], upper, transpose)); },
                     .make =
                         [&] {
                           return Tensors{random({3, 2}), matrix()};
                         },
                     .differentiable = 2});
    }
  }
}

TEST(FormulasTest, StftIsRight) {
  const Tensor window = at::hann_window(4, at::kDouble);
  check_set_ups({.name = "stft",
                 .f = [=](auto& in) { return at::view_as_real(at::stft(in[0], 4, 2, 4, window, false, true, true)); },
                 .make = [] { return Tensors{random({10})}; }});
  check_set_ups({.name = "stft, centered",
                 .f =
                     [=](auto& in) {
                       return at::view_as_real(at::stft(in[0], 4, 2, 4, window, true, "reflect", false, true, true));
                     },
                 .make =
                     [] {
                       return Tensors{random({2, 10})};
                     }});
}

TEST(FormulasTest, LinspaceBetweenTensorsIsRight) {
  const auto make = [] { return Tensors{random({}), random({})}; };
  for (const int64_t steps : {0, 1, 2, 5}) {
    check_set_ups({.name = "linspace",
                   .f = [=](auto& in) { return at::linspace(in[0], in[1], steps); },
                   .make = make,
                   .differentiable = 0,
                   .tolerance = 1e-6});
  }
  for (const auto type : {at::kDouble, at::kLong}) {
    check_set_ups({.name = "linspace in a type",
                   .f = [=](auto& in) { return at::linspace(in[0] * 10, in[1] * 10, 4, type).to(at::kDouble); },
                   .make = make,
                   .differentiable = 0});
  }
  check_set_ups({.name = "linspace to a number",
                 .f = [](auto& in) { return at::linspace(in[0], 3, 4); },
                 .make = make,
                 .differentiable = 0,
                 .tolerance = 1e-6});
  check_set_ups({.name = "linspace from a number",
                 .f = [](auto& in) { return at::linspace(-3, in[0], 4); },
                 .make = make,
                 .differentiable = 0,
                 .tolerance = 1e-6});
}

}  // namespace
}  // namespace graft::testing
