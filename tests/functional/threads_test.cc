// One module in the hands of several threads.
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/to_module.h"
#include "tests/testing/module_snapshot.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using testing::Snapshot;
using testing::ThrowsWith;
using torch::nn::Linear;
using torch::nn::Sequential;

constexpr CallOptions kConcurrent{.concurrent = true};
constexpr int kThreads = 8;
#ifdef __SANITIZE_THREAD__
constexpr int kCalls = 2'000;
#else
constexpr int kCalls = 100'000;
#endif

/// Runs `body(number of the thread)` on several threads at once.
void on_threads(int count, const std::function<void(int)>& body) {
  std::atomic<int> waiting = count;
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      at::set_num_threads(1);
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      body(t);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void on_another_thread(const std::function<void()>& body) { std::thread(body).join(); }

/// A parameter in a member that no table knows, and a known sub-module.
struct ScaledImpl : torch::nn::Module {
  ScaledImpl() {
    scale = register_parameter("scale", torch::ones({2}));
    fc = register_module("fc", Linear(2, 1));
  }
  Tensor forward(const Tensor& x) { return fc(x * scale); }
  Tensor scale;
  Linear fc = nullptr;
};

TensorDict random_leaves(torch::nn::Module& module) {
  return from_module(module).map([](const Tensor& value) { return torch::randn_like(value.detach()); });
}

/// Returns the leaves that a guard can install in a ScaledImpl.
TensorDict without_scale(TensorDict leaves) {
  leaves.erase("scale");
  return leaves;
}

Tensor by_hand(const TensorDict& p, const Tensor& x) {
  return torch::linear(x * p["scale"], p["fc.weight"], p["fc.bias"]);
}

class ThreadsTest : public ::testing::Test {
 protected:
  ThreadsTest() {
    at::set_num_threads(1);
    for (int t = 0; t < kThreads; ++t) leaves_.push_back(random_leaves(net_));
  }

  ScaledImpl net_;
  std::vector<TensorDict> leaves_;
  const Tensor x_ = torch::tensor({2., 3.});
};

TEST_F(ThreadsTest, CallOneModuleEachWithLeavesOfItsOwn) {
  const Snapshot before(net_);
  std::atomic<int> wrong = 0;
  on_threads(kThreads, [&](int t) {
    const c10::InferenceMode no_graph;
    const float expected = by_hand(leaves_[t], x_).item<float>();
    for (int i = 0; i < kCalls; ++i) {
      wrong += functional_call(net_, leaves_[t], kConcurrent, x_).const_data_ptr<float>()[0] != expected;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(before.changes_to(Snapshot(net_)), "");
}

TEST_F(ThreadsTest, DifferentiateEachWithRespectToLeavesOfItsOwn) {
  on_threads(kThreads, [&](int t) {
    const TensorDict leaves = leaves_[t].map([](const Tensor& leaf) { return leaf.clone().set_requires_grad(true); });
    const auto expected = torch::autograd::grad({by_hand(leaves, x_).square().sum()}, leaves.values());
    for (int i = 0; i < 50; ++i) {
      const Tensor loss = functional_call(net_, leaves, kConcurrent, x_).square().sum();
      const auto gradients = torch::autograd::grad({loss}, leaves.values());
      for (std::size_t k = 0; k < expected.size(); ++k) EXPECT_TRUE(gradients[k].equal(expected[k]));
    }
  });
  for (const Tensor& parameter : net_.parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(ThreadsTest, ComputePerSampleGradientsAtOnce) {
  const auto loss = [&](const TensorDict& p, const Tensor& x) {
    return functional_call(net_, p, kConcurrent, x).square().sum();
  };
  const auto per_sample = vmap(grad(loss), {.in_dims = {std::nullopt, 0}});
  const Tensor samples = torch::randn({5, 2});
  on_threads(kThreads, [&](int t) {
    for (int i = 0; i < 20; ++i) {
      const TensorDict gradients = per_sample(leaves_[t], samples);
      for (int64_t s = 0; s < samples.size(0); ++s) {
        const TensorDict leaves =
            leaves_[t].map([](const Tensor& leaf) { return leaf.clone().set_requires_grad(true); });
        const auto expected = torch::autograd::grad({by_hand(leaves, samples[s]).square().sum()}, leaves.values());
        for (std::size_t k = 0; k < expected.size(); ++k) {
          EXPECT_TRUE(gradients.values()[k][s].allclose(expected[k], 1e-4, 1e-5));
        }
      }
    }
  });
}

TEST_F(ThreadsTest, WriteBuffersEachToLeavesOfItsOwn) {
  torch::nn::BatchNorm1d norm(2);
  const Snapshot before(*norm);
  const TensorDict state = from_module(*norm);
  on_threads(kThreads, [&](int t) {
    const TensorDict own = state.map([](const Tensor& value) { return value.detach().clone(); });
    for (int i = 0; i < 50; ++i) functional_call(norm, own, kConcurrent, torch::full({3, 2}, static_cast<double>(t)));
    EXPECT_EQ(own["num_batches_tracked"].item<int>(), 50);
    EXPECT_NEAR(own["running_mean"][0].item<double>(), t * (1 - std::pow(0.9, 50)), 1e-3);
  });
  EXPECT_EQ(before.changes_to(Snapshot(*norm)), "");
}

TEST_F(ThreadsTest, CannotSwapWhatAnotherHasSwapped) {
  const TensorDict before = from_module(net_);
  {
    const ToModuleGuard guard(without_scale(leaves_[0]), net_);
    const Snapshot swapped(net_);
    on_another_thread([&] {
      const auto names_holder = ThrowsWith<c10::Error>("ScaledImpl", "to_module", "another thread", "unchanged");
      EXPECT_THAT([&] { ToModuleGuard second(without_scale(leaves_[1]), net_); }, names_holder);
      EXPECT_THAT([&] { to_module(without_scale(leaves_[1]), net_); }, names_holder);
      EXPECT_THAT([&] { functional_call(net_, leaves_[1], x_); }, names_holder);
      EXPECT_THAT([&] { functional_call(net_, leaves_[1], kConcurrent, x_); }, names_holder);
    });
    EXPECT_EQ(swapped.changes_to(Snapshot(net_)), "");
  }
  on_another_thread([&] {
    { const ToModuleGuard second(without_scale(leaves_[1]), net_); }
    EXPECT_TRUE(functional_call(net_, leaves_[1], x_).equal(by_hand(leaves_[1], x_)));
    EXPECT_TRUE(functional_call(net_, leaves_[1], kConcurrent, x_).equal(by_hand(leaves_[1], x_)));
  });
  for (const auto& [path, leaf] : from_module(net_).leaves()) EXPECT_TRUE(leaf.is_same(before[path])) << path;
}

/// Runs a function in its forward.
struct BusyImpl : torch::nn::Module {
  BusyImpl() { fc = register_module("fc", Linear(2, 1)); }
  Tensor forward(const Tensor& x, const std::function<void()>& body) {
    body();
    return fc(x);
  }
  Linear fc = nullptr;
};

TEST_F(ThreadsTest, CannotSwapWhatAnotherCalls) {
  BusyImpl net;
  const TensorDict leaves = random_leaves(net), others = random_leaves(net);
  const auto nothing = [] {};
  const auto swap_elsewhere = [&] {
    on_another_thread([&] {
      EXPECT_THAT([&] { ToModuleGuard second(others, net); }, ThrowsWith<c10::Error>("BusyImpl", "functional_call"));
      EXPECT_THAT([&] { functional_call(net, others, x_, nothing); }, ThrowsWith<c10::Error>("functional_call"));
      const TensorDict child = others.subtree("fc");
      EXPECT_THAT([&] { to_module(child, *net.fc); }, ThrowsWith<c10::Error>("LinearImpl", "functional_call"));
    });
  };
  const auto call_elsewhere = [&] {
    on_another_thread([&] { functional_call(net, others, kConcurrent, x_, nothing); });
  };
  const Snapshot before(net);
  functional_call(net, leaves, x_, swap_elsewhere);
  functional_call(net, leaves, kConcurrent, x_, swap_elsewhere);
  functional_call(net, leaves, x_, [&] {
    on_another_thread([&] { EXPECT_THROW(functional_call(net, others, kConcurrent, x_, nothing), c10::Error); });
  });
  functional_call(net, leaves, kConcurrent, x_, call_elsewhere);
  EXPECT_EQ(before.changes_to(Snapshot(net)), "");
}

TEST_F(ThreadsTest, HaveOnlyTheirOwnLeavesWhenTheyCompete) {
  const TensorDict before = from_module(net_);
  std::atomic<int> wrong = 0;
  on_threads(4, [&](int t) {
    const c10::InferenceMode no_graph;
    const float expected = by_hand(leaves_[t], x_).item<float>();
    for (int done = 0; done < 200;) {
      try {
        wrong += functional_call(net_, leaves_[t], x_).const_data_ptr<float>()[0] != expected;
        ++done;
      } catch (const c10::Error&) {
        std::this_thread::yield();
      }
    }
  });
  EXPECT_EQ(wrong, 0);
  for (const auto& [path, leaf] : from_module(net_).leaves()) EXPECT_TRUE(leaf.is_same(before[path])) << path;
}

TEST_F(ThreadsTest, NeverMeetInModulesThatHaveNothingInCommon) {
  on_threads(kThreads, [&](int t) {
    ScaledImpl own;
    Sequential deep(Linear(2, 2), Linear(2, 2));
    const TensorDict deep_leaves = random_leaves(*deep);
    for (int i = 0; i < 500; ++i) {
      const ToModuleGuard guard(deep_leaves, *deep);
      EXPECT_TRUE(functional_call(own, leaves_[t], x_).equal(by_hand(leaves_[t], x_)));
      functional_call(own, leaves_[t], kConcurrent, x_);
    }
  });
}

TEST_F(ThreadsTest, MeetInParentsAndChildren) {
  const TensorDict child = leaves_[0].subtree("fc");
  {
    const ToModuleGuard guard(child, *net_.fc);
    on_another_thread([&] {
      EXPECT_THAT([&] { ToModuleGuard second(without_scale(leaves_[1]), net_); },
                  ThrowsWith<c10::Error>("LinearImpl", "to_module"));
    });
  }
  const ToModuleGuard guard(without_scale(leaves_[1]), net_);
  on_another_thread(
      [&] { EXPECT_THAT([&] { to_module(child, *net_.fc); }, ThrowsWith<c10::Error>("LinearImpl", "to_module")); });
}

TEST_F(ThreadsTest, MayNestWhatTheyLike) {
  const ToModuleGuard outer(without_scale(leaves_[0]), net_);
  const ToModuleGuard inner(leaves_[1].subtree("fc"), *net_.fc);
  EXPECT_TRUE(functional_call(net_, leaves_[2], x_).equal(by_hand(leaves_[2], x_)));
  EXPECT_TRUE(functional_call(net_, leaves_[3], kConcurrent, x_).equal(by_hand(leaves_[3], x_)));
  to_module(leaves_[4].subtree("fc"), *net_.fc);
}

/// Computes on threads of its own.
struct SpreadImpl : torch::nn::Module {
  SpreadImpl() { w = register_parameter("w", torch::ones({2})); }
  std::vector<Tensor> forward(const Tensor& x) {
    Tensor given, in_parallel, here = x * w;
    const at::ThreadLocalState state;
    std::thread([&] {
      const at::ThreadLocalStateGuard guard(state);
      given = x * w;
    }).join();
    at::parallel_for(0, 1, 1, [&](int64_t, int64_t) { in_parallel = x * w; });
    return {here, given, in_parallel};
  }
  Tensor w;
};

TEST_F(ThreadsTest, OfForwardItselfComputeWithTheModulesOwnTensors) {
  SpreadImpl net;
  const Tensor leaf = torch::tensor({5., 7.});
  for (const bool concurrent : {false, true}) {
    const auto results = functional_call(net, TensorDict({{"w", leaf}}), {.concurrent = concurrent}, x_);
    EXPECT_TRUE(results[0].equal(x_ * leaf));
    EXPECT_TRUE(results[1].equal(x_));
    EXPECT_TRUE(results[2].equal(x_ * leaf)) << "a parallel_for of one piece runs here";
  }
}

}  // namespace
}  // namespace graft
