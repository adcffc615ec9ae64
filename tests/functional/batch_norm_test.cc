#include "functional/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tensordict/copy.h"
#include "tensordict/join.h"
#include "tensordict/map.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::Snapshot;
using testing::TensorDictNear;
using testing::ThrowsWith;

constexpr int64_t kSamples = 3;
const auto kDoubles = torch::dtype(torch::kDouble);

struct Net : torch::nn::Module {
  explicit Net(bool tracks = true) : norm(torch::nn::BatchNorm1dOptions(4).track_running_stats(tracks)) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
    to(torch::kDouble);
  }
  Tensor forward(const Tensor& x) { return second(torch::tanh(norm(first(x)))); }

  torch::nn::Linear first{3, 4};
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second{4, 2};
};

Tensor samples() { return torch::randn({kSamples, 5, 3}, kDoubles); }

TensorDict params_of(torch::nn::Module& net) { return from_module(net, State::kParameters); }

/// The gradient of the loss for each sample, by backward passes through the module as it is.
TensorDict gradients_by_loop(Net& net, const Tensor& x) {
  std::vector<TensorDict> all;
  for (int64_t i = 0; i < x.size(0); ++i) {
    net.zero_grad();
    net.forward(x[i]).square().sum().backward();
    all.push_back(params_of(net).map([](const Tensor& leaf) { return leaf.grad().clone(); }));
  }
  return stack(all);
}

TensorDict gradients_by_vmap(Net& net, const Tensor& x) {
  const auto loss = [&](const TensorDict& params, const Tensor& sample) {
    return functional_call(net, params, sample).square().sum();
  };
  return vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params_of(net), x);
}

TEST(BatchNormTest, BatchStatisticsAreThoseOfALayerThatTracksNone) {
  Net net, tracks_none(/*tracks=*/false);
  to_module(params_of(net), tracks_none);
  const Tensor x = samples();
  for (const bool trains : {true, false}) {
    net.train(trains);
    const BatchNormGuard guard(net, BatchNormPolicy::kBatchStatistics);
    EXPECT_THAT(gradients_by_vmap(net, x), TensorDictNear(gradients_by_loop(tracks_none, x), 1e-12));
  }
}

TEST(BatchNormTest, FrozenStatisticsAreReadWhileTheRestTrains) {
  Net net, evaluated;
  for (int i = 0; i < 3; ++i) net.forward(torch::randn({5, 3}, kDoubles));
  to_module(from_module(net), evaluated);
  evaluated.eval();
  const Tensor x = samples();
  const BatchNormGuard guard(net, BatchNormPolicy::kFrozen);
  EXPECT_TRUE(net.is_training());
  EXPECT_FALSE(net.norm->is_training());
  EXPECT_THAT(gradients_by_vmap(net, x), TensorDictNear(gradients_by_loop(evaluated, x), 1e-12));
}

TEST(BatchNormTest, EachMemberOfAnEnsembleWritesItsOwnStatistics) {
  const std::vector<std::shared_ptr<Net>> nets = {std::make_shared<Net>(), std::make_shared<Net>()};
  const StackedState state = stack_module_state(nets);
  const Tensor x = torch::randn({5, 3}, kDoubles);
  const auto loss = [&](const TensorDict& params, const TensorDict& buffers) {
    return functional_call(nets[0], {params, buffers}, x).square().sum();
  };
  vmap(grad(loss))(state.params, state.buffers);
  for (int64_t i = 0; i < 2; ++i) {
    nets[i]->forward(x);
    const TensorDict written = map(state.buffers, [&](const Tensor& leaf) { return leaf[i]; }, /*batch_size=*/{});
    EXPECT_THAT(written, TensorDictNear(from_module(*nets[i], State::kBuffers), 1e-12));
  }
}

TEST(BatchNormTest, TheEndOfTheScopeRestoresEveryLayer) {
  Net net;
  net.register_module("again", net.norm.ptr());
  for (const auto policy : {BatchNormPolicy::kBatchStatistics, BatchNormPolicy::kFrozen}) {
    const Snapshot before(net);
    const auto call_and_throw = [&] {
      const BatchNormGuard guard(net, policy);
      const BatchNormGuard inner(net, BatchNormPolicy::kBatchStatistics);
      net.forward(torch::randn({5, 3}, kDoubles));
      throw std::runtime_error("out");
    };
    EXPECT_THROW(call_and_throw(), std::runtime_error);
    EXPECT_EQ(before.changes_to(Snapshot(net)), "");
    EXPECT_TRUE(net.norm->is_training());
    EXPECT_TRUE(net.norm->options.track_running_stats());
  }
  net.forward(torch::randn({5, 3}, kDoubles));
  EXPECT_EQ(net.norm->num_batches_tracked.item<int64_t>(), 1);
}

TEST(BatchNormTest, AnInnerGuardMayUseTheOtherPolicy) {
  Net net;
  const Tensor x = torch::randn({5, 3}, kDoubles);
  net.eval();
  const Tensor by_running = net.forward(x);
  net.train();
  const BatchNormGuard outer(net, BatchNormPolicy::kBatchStatistics);
  const Tensor by_batch = net.forward(x);
  EXPECT_FALSE(by_batch.allclose(by_running));
  {
    // Statistics that were put away cannot be read.
    const BatchNormGuard inner(net, BatchNormPolicy::kFrozen);
    EXPECT_TRUE(net.forward(x).equal(by_batch));
  }
  EXPECT_TRUE(net.forward(x).equal(by_batch));
}

TEST(BatchNormTest, StatisticsStayRegisteredAndMayHaveLeaves) {
  Net net;
  const TensorDict state = clone(from_module(net));
  const Tensor x = torch::randn({5, 3}, kDoubles);
  const BatchNormGuard guard(net, BatchNormPolicy::kBatchStatistics);
  EXPECT_THAT(from_module(net), TensorDictNear(state, 0));
  const TensorDict before = clone(state);
  EXPECT_TRUE(functional_call(net, state, x).equal(net.forward(x)));
  EXPECT_THAT(state, TensorDictNear(before, 0));
}

TEST(BatchNormTest, InstanceNormAndDerivedLayersFollow) {
  struct MyNormImpl : torch::nn::InstanceNorm1dImpl {
    using InstanceNorm1dImpl::InstanceNorm1dImpl;
  };
  const auto options = torch::nn::InstanceNorm1dOptions(2).track_running_stats(true);
  MyNormImpl norm(options);
  torch::nn::InstanceNorm1d without(torch::nn::InstanceNorm1dOptions(2));
  const Tensor x = torch::randn({kSamples, 4, 2, 6});
  const BatchNormGuard guard(norm, BatchNormPolicy::kBatchStatistics);
  const auto forward = [&](const Tensor& sample) { return functional_call(norm, TensorDict(), sample); };
  const Tensor y = vmap(forward)(x);
  for (int64_t i = 0; i < kSamples; ++i) EXPECT_TRUE(y[i].allclose(without(x[i])));
}

TEST(BatchNormTest, AnotherThreadCannotCallMeanwhile) {
  Net net;
  const BatchNormGuard guard(net, BatchNormPolicy::kFrozen);
  std::thread([&] {
    EXPECT_THAT(
        [&] {
          functional_call(net, TensorDict(), torch::ones({5, 3}, kDoubles));
        },
        ThrowsWith<c10::Error>("BatchNormGuard"));
  }).join();
}

TEST(BatchNormTest, ErrorsSayWhichPoliciesThereAre) {
  Net net;
  const Tensor x = samples();
  const Snapshot before(net);
  const auto per_sample = [&](const Tensor& sample) { return functional_call(net, TensorDict(), sample); };
  EXPECT_THAT([&] { vmap(per_sample)(x); }, ThrowsWith<c10::Error>("\"norm\" (torch::nn::BatchNorm1dImpl)",
                                                                   "kBatchStatistics", "kFrozen", "buffers"));
  EXPECT_THAT([&] { gradients_by_vmap(net, x); }, ThrowsWith<c10::Error>("\"norm\"", "kBatchStatistics"));
  EXPECT_EQ(before.thread_changes_to(Snapshot(net)), "");
}

struct Counting : torch::nn::Module {
  Tensor forward(const Tensor& x) {
    calls += 1;
    return dropout(x * weight);
  }
  Tensor weight = register_parameter("weight", torch::ones(3));
  Tensor calls = register_buffer("calls", torch::zeros({}));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout());
};

TEST(BatchNormTest, ErrorsOfOtherBuffersAndOfDropoutSayWhatToDo) {
  Counting net;
  const Tensor x = torch::ones({kSamples, 3});
  const auto loss = [&](const TensorDict& params) { return functional_call(net, params, x).sum(); };
  EXPECT_THAT([&] { grad(loss)(params_of(net)); }, ThrowsWith<c10::Error>("a buffer", "{params, buffers}"));
  const auto forward = [&](const Tensor& sample) { return functional_call(net, TensorDict(), sample); };
  EXPECT_THAT([&] { vmap(forward)(x); }, ThrowsWith<c10::Error>("Randomness::kDifferent", "eval()"));
}

TEST(BatchNormTest, OtherErrorsGetNoAdvice) {
  Net net;
  try {
    functional_call(net, TensorDict(), torch::ones({5, 7}, kDoubles));
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("functional_call:")));
  }
}

}  // namespace
}  // namespace graft
