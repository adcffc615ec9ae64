// jacrev, jacfwd and hessian against rows by ordinary autograd and finite differences.
#include "vmap/jacobian.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "functional/grad.h"
#include "functional/internal/transform_level.h"
#include "tensordict/structure.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;

Tensor random(at::IntArrayRef sizes) { return torch::randn(sizes, torch::kDouble); }

/// [n] -> [2, n]
Tensor f(const Tensor& x) { return torch::stack({x.sin() * x.sum(), x.square() + x[0]}); }

Tensor layer(const TensorDict& p, const Tensor& x) { return (x.matmul(p["w"]) + p["b"]).tanh(); }

/// One row for each element of the result.
template <class F>
Tensor by_rows(const F& function, const Tensor& x) {
  const Tensor leaf = x.clone().requires_grad_();
  const Tensor y = function(leaf);
  std::vector<Tensor> rows;
  for (int64_t i = 0; i < y.numel(); ++i) {
    rows.push_back(torch::autograd::grad({y.flatten()[i]}, {leaf}, {}, /*retain_graph=*/true)[0]);
  }
  std::vector<int64_t> sizes = y.sizes().vec();
  sizes.insert(sizes.end(), x.sizes().begin(), x.sizes().end());
  return torch::stack(rows).reshape(sizes);
}

class JacobianTest : public ::testing::Test {
 protected:
  void SetUp() override { torch::manual_seed(0); }
  void TearDown() override { EXPECT_EQ(internal::depth(), 0); }

  TensorDict params_{{{"w", random({3, 2})}, {"b", random({2})}}};
  Tensor x_ = random({3});
};

TEST_F(JacobianTest, EqualsRowsByAutograd) {
  const Tensor expected = by_rows(f, x_);
  EXPECT_TRUE(jacrev(f)(x_).allclose(expected));
  EXPECT_TRUE(jacfwd(f)(x_).allclose(expected));
}

TEST_F(JacobianTest, TakesRowsAndColumnsInChunks) {
  const Tensor expected = by_rows(f, x_);
  for (const int64_t chunk : {1, 2, 4, 100}) {
    EXPECT_TRUE(jacrev(f, {.chunk_size = chunk})(x_).allclose(expected)) << chunk;
    EXPECT_TRUE(jacfwd(f, {.chunk_size = chunk})(x_).allclose(expected)) << chunk;
  }
  EXPECT_THAT([&] { jacrev(f, {.chunk_size = 0})(x_); }, ThrowsWith<c10::ValueError>("chunk_size is 0"));
}

TEST_F(JacobianTest, OfAFunctionThatWritesInPlaceIsMapped) {
  const Tensor w = random({4, 3}), xs = random({5, 3});
  const auto layer_in_place = [&](const Tensor& x) { return w.mv(x).relu_(); };
  const auto loss_in_place = [&](const Tensor& x) { return w.mv(x.square()).relu_().exp().sum(); };
  const Tensor by_forward = vmap(jacfwd(layer_in_place))(xs), second = vmap(hessian(loss_in_place))(xs);
  for (int64_t i = 0; i < xs.size(0); ++i) {
    EXPECT_TRUE(by_forward[i].allclose(by_rows(layer_in_place, xs[i])));
    EXPECT_TRUE(second[i].allclose(by_rows(grad(loss_in_place), xs[i])));
  }
}

TEST_F(JacobianTest, OfNoElementsIsEmpty) {
  const auto none = [](const Tensor& x) { return x.narrow(0, 0, 0).sin(); };  // [3] -> [0]
  const auto of_none = [](const Tensor& x) { return x.sum().expand({2}); };   // [0] -> [2]
  for (const std::optional<int64_t> chunk : {std::optional<int64_t>(), std::optional<int64_t>(2)}) {
    EXPECT_EQ(jacrev(none, {.chunk_size = chunk})(x_).sizes(), (std::vector<int64_t>{0, 3}));
    EXPECT_EQ(jacfwd(none, {.chunk_size = chunk})(x_).sizes(), (std::vector<int64_t>{0, 3}));
    EXPECT_EQ(jacrev(of_none, {.chunk_size = chunk})(random({0})).sizes(), (std::vector<int64_t>{2, 0}));
    EXPECT_EQ(jacfwd(of_none, {.chunk_size = chunk})(random({0})).sizes(), (std::vector<int64_t>{2, 0}));
  }
}

TEST_F(JacobianTest, HasTheTreeOfTheArgument) {
  const TensorDict by_reverse = jacrev(layer)(params_, x_);
  const TensorDict by_forward = jacfwd<0>(layer)(params_, x_);
  const auto of_w = [&](const Tensor& w) { return layer(TensorDict({{"w", w}, {"b", params_["b"]}}), x_); };
  EXPECT_TRUE(by_reverse["w"].allclose(by_rows(of_w, params_["w"])));
  EXPECT_EQ(by_reverse["b"].sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_TRUE(allclose(by_reverse, by_forward));
}

TEST_F(JacobianTest, TakesSeveralArguments) {
  const auto [by_x, by_params] = jacrev<-1, 0>(layer)(params_, x_);
  EXPECT_TRUE(by_x.allclose(by_rows([&](const Tensor& x) { return layer(params_, x); }, x_)));
  const auto [p, x] = jacfwd<0, 1>(layer)(params_, x_);
  EXPECT_TRUE(x.allclose(by_x));
  EXPECT_TRUE(allclose(p, by_params));
}

TEST_F(JacobianTest, HasTheTreeOfTheResult) {
  const auto g = [](const Tensor& x) {
    return std::pair(TensorDict({{"a.b", x.sin()}, {"c", x.sum()}}), std::vector<Tensor>{x.square(), f(x)});
  };
  const auto check = [&](const auto& jacobian) {
    const auto& [tree, list] = jacobian;
    EXPECT_TRUE(tree["a.b"].allclose(torch::diag(x_.cos())));
    EXPECT_TRUE(tree["c"].equal(torch::ones({3}, torch::kDouble)));
    EXPECT_TRUE(list[0].allclose(torch::diag(2 * x_)));
    EXPECT_TRUE(list[1].allclose(by_rows(f, x_)));
  };
  check(jacrev(g)(x_));
  check(jacfwd(g)(x_));
}

TEST_F(JacobianTest, NestsTreesInTrees) {
  const auto g = [&](const TensorDict& p) { return TensorDict({{"y", layer(p, x_)}, {"z", p["b"].square()}}); };
  const TensorDict jacobian = jacrev(g)(params_);
  EXPECT_TRUE(jacobian["z.b"].allclose(torch::diag(2 * params_["b"])));
  EXPECT_TRUE(jacobian["z.w"].equal(torch::zeros({2, 3, 2}, torch::kDouble)));
  EXPECT_TRUE(jacobian["y.w"].allclose(jacrev(layer)(params_, x_)["w"]));
  EXPECT_TRUE(allclose(jacfwd(g)(params_), jacobian));
  const auto of_pair = [](const std::pair<Tensor, TensorDict>& in) {
    return TensorDict({{"s", in.first.sum() * in.second["b"]}});
  };
  const auto [by_first, by_second] = jacrev(of_pair)(std::pair(x_, params_));
  EXPECT_TRUE(by_first["s"].allclose(params_["b"].unsqueeze(1).expand({2, 3})));
  EXPECT_TRUE(by_second["s.b"].allclose(x_.sum() * torch::eye(2, torch::kDouble)));
}

TEST_F(JacobianTest, HandsOutTheAuxiliaryValue) {
  const auto g = [](const Tensor& x) { return WithAux{f(x), std::pair(x + 1, 7)}; };
  for (const auto& [jacobian, aux] : {jacrev(g)(x_), jacfwd(g)(x_)}) {
    EXPECT_TRUE(jacobian.allclose(by_rows(f, x_)));
    EXPECT_TRUE(aux.first.equal(x_ + 1));
    EXPECT_EQ(aux.second, 7);
  }
}

TEST_F(JacobianTest, HessianIsSymmetricAndEqualsDifferences) {
  const auto g = [](const Tensor& x) { return x.sin().prod() + x.pow(3).sum(); };
  const Tensor h = hessian(g)(x_);
  EXPECT_TRUE(h.allclose(h.t()));
  const double step = 1e-5;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor e = torch::eye(3, torch::kDouble)[i];
    EXPECT_TRUE(h[i].allclose((grad(g)(x_ + step * e) - grad(g)(x_ - step * e)) / (2 * step), 1e-6, 1e-7));
  }
}

TEST_F(JacobianTest, HessianOfATreeHasAllPairs) {
  const auto loss = [&](const TensorDict& p) { return layer(p, x_).square().sum(); };
  const TensorDict h = hessian(loss)(params_);
  EXPECT_EQ(h.size(), 4);
  EXPECT_EQ(h["w.b"].sizes(), (std::vector<int64_t>{3, 2, 2}));
  EXPECT_TRUE(h["w.b"].allclose(h["b.w"].permute({1, 2, 0})));
  const auto of_both = [](const TensorDict& p, const Tensor& x) { return layer(p, x).square().sum(); };
  const auto [by_params, by_x] = hessian<0, 1>(of_both)(params_, x_);
  const auto& [pp, px] = by_params;
  const auto& [xp, xx] = by_x;
  EXPECT_TRUE(allclose(pp, h));
  EXPECT_TRUE(px["b"].allclose(xp["b"].t()));
  EXPECT_EQ(xx.sizes(), (std::vector<int64_t>{3, 3}));
}

TEST_F(JacobianTest, NestsInVmapAndGrad) {
  const Tensor points = random({4, 3});
  const Tensor all = vmap(jacrev(f))(points);
  const Tensor hessians = vmap(hessian([](const Tensor& x) { return x.sin().prod(); }))(points);
  for (int64_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(all[i].allclose(by_rows(f, points[i])));
    EXPECT_TRUE(hessians[i].allclose(hessian([](const Tensor& x) { return x.sin().prod(); })(points[i])));
  }
  const auto norm = [](const Tensor& x) { return jacrev(f)(x).square().sum(); };
  const auto norm_forward = [](const Tensor& x) { return jacfwd(f)(x).square().sum(); };
  const Tensor leaf = x_.clone().requires_grad_();
  norm(leaf).backward();
  EXPECT_TRUE(grad(norm)(x_).allclose(leaf.grad()));
  EXPECT_TRUE(grad(norm_forward)(x_).allclose(leaf.grad()));
}

TEST_F(JacobianTest, IsZeroForWhatDoesNotDepend) {
  const auto g = [](const Tensor& x) { return x.detach(); };
  EXPECT_TRUE(jacrev(g)(x_).equal(torch::zeros({3, 3}, torch::kDouble)));
  EXPECT_TRUE(jacfwd(g)(x_).equal(torch::zeros({3, 3}, torch::kDouble)));
}

TEST_F(JacobianTest, SaysWhatRandomnessMeans) {
  const auto noisy = [](const Tensor& x) { return x * torch::rand_like(x); };
  EXPECT_THROW(jacfwd(noisy)(x_), c10::Error);
  const Tensor same = jacfwd(noisy, {.randomness = Randomness::kSame})(x_);
  EXPECT_TRUE(same.equal(torch::diag(same.diag())));
}

}  // namespace
}  // namespace graft
