// Operators inside a redirect against the same operators called with the leaf itself.
#include "functional/internal/leaf_redirect.h"

#include <ATen/ThreadLocalState.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace graft::internal {
namespace {

using torch::Tensor;

class LeafRedirectTest : public ::testing::Test {
 protected:
  Tensor old_ = torch::tensor({1., 2.}), leaf_ = torch::tensor({3., 5.});
  const Tensor x_ = torch::tensor({7., 11.});

  /// Computes `f` with the old tensor inside a scope that redirects it, and with the leaf outside.
  void expect_computes_with_leaf(const std::function<Tensor(const Tensor&)>& f) const {
    const Tensor expected = f(leaf_);
    const RedirectScope scope({{old_, leaf_}});
    EXPECT_TRUE(f(old_).equal(expected));
  }
};

TEST_F(LeafRedirectTest, ExchangesTensorArguments) {
  expect_computes_with_leaf([&](const Tensor& w) { return w + x_; });
  expect_computes_with_leaf([&](const Tensor& w) { return x_ * w; });
  expect_computes_with_leaf([&](const Tensor& w) { return w * w; });
  expect_computes_with_leaf([](const Tensor& w) { return w.view({2, 1}).t(); });
}

TEST_F(LeafRedirectTest, ExchangesOptionalArguments) {
  const Tensor weight = torch::ones({2, 2});
  expect_computes_with_leaf([&](const Tensor& w) { return at::linear(x_, weight, w); });
  expect_computes_with_leaf([&](const Tensor& w) { return at::layer_norm(x_, {2}, /*weight=*/w, /*bias=*/w); });
  expect_computes_with_leaf([&](const Tensor& w) { return at::clamp(x_, std::optional<Tensor>(), w); });
}

TEST_F(LeafRedirectTest, ExchangesInLists) {
  expect_computes_with_leaf([&](const Tensor& w) { return torch::cat({x_, w, x_, w}); });
  expect_computes_with_leaf([&](const Tensor& w) { return torch::stack({w, x_}); });
  expect_computes_with_leaf([&](const Tensor& w) { return at::_foreach_mul({x_, w}, {w, w})[1]; });
}

TEST_F(LeafRedirectTest, LeavesTheCallersListAsItIs) {
  const std::vector<Tensor> list{old_, x_};
  const RedirectScope scope({{old_, leaf_}});
  torch::cat(list);
  EXPECT_TRUE(list[0].is_same(old_));
}

TEST_F(LeafRedirectTest, ExchangesInListsOfOptionalTensors) {
  old_ = torch::tensor({0, 0});
  leaf_ = torch::tensor({1, 0});
  const Tensor table = torch::arange(6).view({3, 2});
  expect_computes_with_leaf([&](const Tensor& w) { return table.index({w}); });
  expect_computes_with_leaf([&](const Tensor& w) { return table.index({torch::indexing::Slice(), w}); });
  expect_computes_with_leaf([&](const Tensor& w) { return at::index(table, {std::nullopt, w}); });
}

TEST_F(LeafRedirectTest, ExchangesAmongTheIndicesOfAWrite) {
  old_ = torch::tensor({0, 0});
  leaf_ = torch::tensor({1, 0});
  const Tensor table = torch::arange(6).view({3, 2}), row = torch::tensor({7, 8});
  expect_computes_with_leaf([&](const Tensor& w) { return at::index_put(table, {w}, row, /*accumulate=*/true); });
  expect_computes_with_leaf([&](const Tensor& w) { return at::index_put(table, {std::nullopt, w}, w[0]); });
  expect_computes_with_leaf([&](const Tensor& w) {
    Tensor copy = table.clone();
    return copy.index_put_({torch::indexing::Slice(), w}, w.view({1, 2}));
  });
}

TEST_F(LeafRedirectTest, WritesToTheLeafInPlace) {
  {
    const RedirectScope scope({{old_, leaf_}});
    const Tensor result = old_.add_(1);
    EXPECT_TRUE((result * 2).equal(torch::tensor({8., 12.})));
    at::mul_out(old_, x_, x_);
  }
  EXPECT_TRUE(old_.equal(torch::tensor({1., 2.})));
  EXPECT_TRUE(leaf_.equal(torch::tensor({49., 121.})));
}

TEST_F(LeafRedirectTest, LeavesOtherTensorsAlone) {
  const RedirectScope scope({{old_, leaf_}});
  EXPECT_TRUE((x_ + x_).equal(torch::tensor({14., 22.})));
  EXPECT_TRUE(torch::cat({x_, x_}).equal(torch::tensor({7., 11., 7., 11.})));
}

TEST_F(LeafRedirectTest, EndsWithTheScopeEvenWhenTheBodyThrows) {
  { const RedirectScope scope({{old_, leaf_}}); }
  EXPECT_TRUE((old_ + 0).equal(old_));
  EXPECT_THROW(
      {
        const RedirectScope scope({{old_, leaf_}});
        throw std::runtime_error("body");
      },
      std::runtime_error);
  EXPECT_TRUE((old_ + 0).equal(torch::tensor({1., 2.})));
  EXPECT_THROW(
      {
        const RedirectScope scope({{old_, leaf_}});
        old_.matmul(torch::ones({3}));
      },
      c10::Error);
  EXPECT_TRUE((old_ + 0).equal(torch::tensor({1., 2.})));
}

TEST_F(LeafRedirectTest, ExchangesAResultThatPassedNoOperator) {
  const RedirectScope scope({{old_, leaf_}});
  EXPECT_TRUE(scope.leaf_for(old_).is_same(leaf_));
  EXPECT_TRUE(scope.leaf_for(x_).is_same(x_));
  EXPECT_FALSE(scope.leaf_for(Tensor()).defined());
}

TEST_F(LeafRedirectTest, KeepsATensorThatComesFromElsewhere) {
  old_.set_requires_grad(true);
  leaf_.set_requires_grad(true);
  const RedirectScope scope({{old_, leaf_}});
  EXPECT_TRUE(scope.kept(x_).is_same(x_));
  const Tensor kept = scope.kept(old_);
  EXPECT_TRUE((kept * old_).equal(torch::tensor({3., 10.})));
  EXPECT_TRUE(torch::autograd::grad({(kept * x_).sum()}, {old_})[0].equal(x_));
  EXPECT_TRUE((old_ + 0).equal(torch::tensor({3., 5.})));
}

TEST_F(LeafRedirectTest, KeepsWhatTheOuterScopeMakesOfATensor) {
  const RedirectScope outer({{old_, leaf_}});
  const RedirectScope inner({{old_, x_}});
  EXPECT_TRUE((inner.kept(old_) + 0).equal(torch::tensor({3., 5.})));
  EXPECT_TRUE((old_ + 0).equal(x_));
}

TEST_F(LeafRedirectTest, DoesNotFollowALeafThatIsAnotherOldTensor) {
  const RedirectScope swap({{old_, x_}, {x_, old_}});
  EXPECT_TRUE((old_ + 0).equal(torch::tensor({7., 11.})));
  EXPECT_TRUE((x_ + 0).equal(torch::tensor({1., 2.})));
}

TEST_F(LeafRedirectTest, RedirectsOnWhatTheOuterScopeRedirects) {
  const Tensor further = torch::tensor({13., 17.});
  const RedirectScope outer({{old_, leaf_}});
  {
    const RedirectScope inner({{leaf_, further}});
    EXPECT_TRUE((old_ + 0).equal(torch::tensor({13., 17.})));
    EXPECT_TRUE((leaf_ + 0).equal(torch::tensor({13., 17.})));
    EXPECT_TRUE(inner.leaf_for(old_).is_same(further));
  }
  EXPECT_TRUE((old_ + 0).equal(torch::tensor({3., 5.})));
}

TEST_F(LeafRedirectTest, PrefersTheInnerScopeAndKeepsTheRestOfTheOuter) {
  const Tensor inner_leaf = torch::tensor({13., 17.}), other = torch::zeros({2});
  const RedirectScope outer({{old_, leaf_}, {other, x_}});
  const RedirectScope inner({{old_, inner_leaf}});
  EXPECT_TRUE((old_ + 0).equal(torch::tensor({13., 17.})));
  EXPECT_TRUE((other + 0).equal(torch::tensor({7., 11.})));
}

TEST_F(LeafRedirectTest, KeepsAnOuterExchangeOfTwoTensorsInAnInnerScope) {
  // Many pairs: a wrong composition depends on the order in which the map is read.
  std::vector<Tensor> tensors;
  for (int i = 0; i < 16; ++i) tensors.push_back(torch::full({1}, i));
  std::vector<std::pair<Tensor, Tensor>> ring;
  for (int i = 0; i < 16; ++i) ring.emplace_back(tensors[i], tensors[(i + 1) % 16]);
  const RedirectScope outer(ring);
  const RedirectScope inner({{old_, leaf_}});
  for (int i = 0; i < 16; ++i) EXPECT_EQ((tensors[i] + 0).item<int>(), (i + 1) % 16);
}

TEST_F(LeafRedirectTest, InstallsWhatAnOldTensorOfTheOuterScopeStandsFor) {
  const Tensor inner_old = torch::zeros({2});
  const RedirectScope outer({{old_, leaf_}});
  const RedirectScope inner({{inner_old, old_}});
  EXPECT_TRUE((inner_old + 0).equal(torch::tensor({3., 5.})));
}

TEST_F(LeafRedirectTest, GivesTheGradientToTheLeaf) {
  old_.set_requires_grad(true);
  leaf_.set_requires_grad(true);
  Tensor result;
  {
    const RedirectScope scope({{old_, leaf_}});
    result = (old_ * old_ * x_).sum();
  }
  result.backward();
  EXPECT_TRUE(leaf_.grad().equal(torch::tensor({42., 110.})));
  EXPECT_FALSE(old_.grad().defined());
}

TEST_F(LeafRedirectTest, StaysOutOfABackwardThatIsEnteredInside) {
  // The graph made before holds `old_` itself: its derivative must not be computed with the leaf.
  old_.set_requires_grad(true);
  leaf_.set_requires_grad(true);
  const Tensor before = old_.pow(3).sum();
  const RedirectScope scope({{old_, leaf_}});
  const Tensor inside = old_.pow(3).sum();
  const Tensor old_gradient = torch::autograd::grad({before}, {old_})[0];
  EXPECT_TRUE(old_gradient.equal(torch::tensor({3., 12.})));
  EXPECT_TRUE(torch::autograd::grad({inside}, {leaf_})[0].equal(torch::tensor({27., 75.})));
}

/// Runs a function of its own in the backward pass.
struct Hooked : torch::autograd::Function<Hooked> {
  static inline std::function<Tensor()> body;
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0] * body()};
  }
};

TEST_F(LeafRedirectTest, WorksInAScopeOpenedInsideABackward) {
  // A call made by a backward pass, as a checkpoint does.
  const Tensor input = torch::ones({2}).set_requires_grad(true);
  Hooked::body = [&] {
    const RedirectScope scope({{old_, leaf_}});
    return old_ + 0;
  };
  Hooked::apply(input).sum().backward();
  EXPECT_TRUE(input.grad().equal(torch::tensor({3., 5.})));
}

TEST_F(LeafRedirectTest, PassesThroughOnAThreadThatWasGivenTheState) {
  const RedirectScope scope({{old_, leaf_}});
  const at::ThreadLocalState state;
  Tensor result;
  std::thread([&] {
    const at::ThreadLocalStateGuard guard(state);
    result = old_ + 0;
  }).join();
  const c10::impl::ExcludeDispatchKeyGuard plainly(c10::DispatchKey::TESTING_ONLY_GenericMode);
  EXPECT_TRUE(result.equal(torch::tensor({1., 2.})));
}

TEST_F(LeafRedirectTest, IsNotSeenByOtherThreads) {
  const RedirectScope scope({{old_, leaf_}});
  double first = 0;
  std::thread([&] { first = (old_ + 0)[0].item<double>(); }).join();
  EXPECT_EQ(first, 1);
}

}  // namespace
}  // namespace graft::internal
