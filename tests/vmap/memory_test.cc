// Ten thousand swaps, or per-sample gradients, or training steps leave memory as it was: no block of tensor data more
// or less, and no growth of the heap that counts.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "functional/slots.h"
#include "functional/to_module.h"
#include "tensordict/map.h"
#include "tests/testing/counting_allocator.h"
#include "tests/testing/heap.h"
#include "vmap/ensemble.h"
#include "vmap/vmap.h"

namespace {

/// Holds a raw parameter; no annotation.
struct RawImpl : torch::nn::Module {
  RawImpl() { w = register_parameter("w", torch::ones({3, 3})); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(w)) * w[0]; }
  torch::Tensor w;
};

/// The same class, annotated.
struct AnnotatedImpl : torch::nn::Module {
  AnnotatedImpl() { w_ = register_parameter("w", torch::ones({3, 3})); }
  torch::Tensor forward(const torch::Tensor& x) { return torch::tanh(x.matmul(w_)) * w_[0]; }

 private:
  torch::Tensor w_;
};

}  // namespace

GRAFT_SLOTS(AnnotatedImpl, w_)

namespace graft {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;
using torch::nn::Linear;

using testing::heap_bytes;
using testing::kHeapSlack;
using testing::kSeesHeap;

// AddressSanitizer is slow. The smallest allocation, if each of these steps leaked it, would be 320,000 bytes.
constexpr int kStepsPerGroup = kSeesHeap ? 1'000 : 20;
constexpr int kGroups = 10;

void run_group(absl::FunctionRef<void()> step) {
  at::set_num_threads(1);  // of this thread
  for (int i = 0; i < kStepsPerGroup; ++i) step();
}

/// Do ten groups of steps leave memory as it was, once a first group has filled the caches that there are?
AssertionResult stays_flat(absl::FunctionRef<void()> step) {
  const auto& tensors = testing::CountingAllocator::install();
  run_group(step);
  const auto tensors_before = tensors.live();
  const int64_t heap_before = heap_bytes();
  for (int group = 1; group <= kGroups; ++group) {
    run_group(step);
    if (const auto now = tensors.live(); now != tensors_before) {
      return AssertionFailure() << "tensor data went from " << tensors_before << " to " << now << " in "
                                << group * kStepsPerGroup << " steps";
    }
  }
  const int64_t growth = heap_bytes() - heap_before;
  ::testing::Test::RecordProperty("heap_growth", std::to_string(growth));
  if (growth > kHeapSlack) {
    return AssertionFailure() << "the heap grew by " << growth << " bytes in " << kGroups * kStepsPerGroup << " steps";
  }
  return AssertionSuccess();
}

/// Has parameters, buffers and an empty slot.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    fc1 = register_module("fc1", Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
    fc2 = register_module("fc2", Linear(torch::nn::LinearOptions(4, 2).bias(false)));
  }
  Tensor forward(const Tensor& x) { return fc2(norm(torch::relu(fc1(x)))); }
  Linear fc1 = nullptr, fc2 = nullptr;
  torch::nn::BatchNorm1d norm = nullptr;
};
TORCH_MODULE(Net);

TensorDict copy_of(const TensorDict& tree) {
  return map(tree, [](const Tensor& leaf) { return leaf.detach().clone(); });
}

/// Lists the leaves, to make a tree with a key table of its own.
std::vector<std::pair<std::string, Tensor>> leaves_of(const TensorDict& tree) {
  std::vector<std::pair<std::string, Tensor>> leaves;
  for (const auto& [path, value] : tree.leaves()) leaves.emplace_back(path, value);
  return leaves;
}

TEST(StaysFlatTest, SeesATensorThatEachStepKeeps) {
  std::vector<Tensor> kept;
  EXPECT_FALSE(stays_flat([&] { kept.push_back(torch::zeros({1})); }));
}

TEST(StaysFlatTest, SeesAByteThatEachStepKeeps) {
  std::vector<std::unique_ptr<char>> kept;
  kept.reserve((kGroups + 1) * kStepsPerGroup);
  EXPECT_EQ(stays_flat([&] { kept.push_back(std::make_unique<char>()); }), !kSeesHeap);
}

class SwapMemoryTest : public ::testing::Test {
 protected:
  void swap_new_module() const {
    Net net;
    const ToModuleGuard guard(leaves_, *net);
    functional_call(net, from_module(*net), x_);
  }

  Net net_;
  TensorDict leaves_ = copy_of(from_module(*net_));
  Tensor x_ = torch::ones({5, 3});
};

TEST_F(SwapMemoryTest, StaysFlatForPlainLeaves) {
  EXPECT_TRUE(stays_flat([&] {
    const ToModuleGuard guard(leaves_, *net_);
    net_->forward(x_);
    guard.current();
  }));
}

TEST_F(SwapMemoryTest, StaysFlatForLeavesThatRequireGrad) {
  const TensorDict params = copy_of(from_module(*net_, State::kParameters));
  for (const Tensor& leaf : params.values()) leaf.set_requires_grad(true);
  EXPECT_TRUE(stays_flat([&] {
    const ToModuleGuard guard(params, *net_);
    net_->forward(x_).sum().backward();
  }));
}

TEST_F(SwapMemoryTest, StaysFlatForBatchedLeaves) {
  const TensorDict stacked = map(leaves_, [](const Tensor& leaf) { return torch::stack({leaf, leaf}); });
  const auto forward = vmap([&](const TensorDict& leaves) {
    const ToModuleGuard guard(leaves, *net_);
    return net_->forward(x_);
  });
  EXPECT_TRUE(stays_flat([&] { forward(stacked); }));
}

TEST_F(SwapMemoryTest, StaysFlatForSwapsForGood) {
  EXPECT_TRUE(stays_flat([&] {
    const auto old = to_module(leaves_, *net_);
    to_module(*old, *net_);
  }));
}

TEST_F(SwapMemoryTest, StaysFlatForKeysThatAreNewEachTime) {
  const auto leaves = leaves_of(leaves_);
  EXPECT_TRUE(stays_flat([&] {
    const TensorDict fresh(leaves);
    const ToModuleGuard guard(fresh, *net_);
    from_module(*net_, State::kParameters);
  }));
}

// A thread remembers the plans of the last 64 modules and with each plan up to four tables of keys. A plan holds no
// tensor, but if make_shared made the module then the bytes of the object itself. The first group of steps fills all.
TEST_F(SwapMemoryTest, StaysFlatForModulesThatAreNewEachTime) {
  EXPECT_TRUE(stays_flat([&] { swap_new_module(); }));
}

TEST_F(SwapMemoryTest, RemembersAtMost64ModulesForTheLifeOfAThread) {
  int64_t remembered = 0;
  const auto swap_in_a_thread = [&] {
    std::thread([&] {
      const int64_t before = heap_bytes();
      run_group([&] { swap_new_module(); });
      remembered = heap_bytes() - before;
    }).join();
  };
  swap_in_a_thread();  // malloc keeps something for the next thread
  const int64_t before = heap_bytes();
  swap_in_a_thread();
  EXPECT_LT(remembered, 64 * 10'000);
  EXPECT_LE(heap_bytes() - before, kHeapSlack);
}

TEST_F(SwapMemoryTest, KeepsNoTensorOfAModuleThatIsGone) {
  const auto& tensors = testing::CountingAllocator::install();
  const auto before = tensors.live();
  {
    Net net;
    { const ToModuleGuard guard(leaves_, *net); }
    functional_call(net, from_module(*net), x_);
    EXPECT_NE(tensors.live(), before);
  }
  EXPECT_EQ(tensors.live(), before);
}

template <typename Module>
TensorDict per_sample_gradients(Module& module, const TensorDict& params, const Tensor& x) {
  const auto loss = [&](const TensorDict& p, const Tensor& sample) {
    return functional_call(module, p, sample.unsqueeze(0)).square().sum();
  };
  return vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, x);
}

template <typename Module>
void expect_flat_per_sample_gradients() {
  Module module;
  const TensorDict params = from_module(module, State::kParameters);
  const Tensor x = torch::ones({4, 3});
  const torch::NoGradGuard no_grad;
  EXPECT_TRUE(stays_flat([&] { per_sample_gradients(module, params, x); }));
}

TEST(PerSampleGradMemoryTest, StaysFlatForAnAnnotatedModule) { expect_flat_per_sample_gradients<AnnotatedImpl>(); }
TEST(PerSampleGradMemoryTest, StaysFlatForARedirectedModule) { expect_flat_per_sample_gradients<RawImpl>(); }

TEST(PerSampleGradMemoryTest, StaysFlatWithAGraphOfTheGradients) {
  AnnotatedImpl module;
  const TensorDict params = from_module(module, State::kParameters);
  const Tensor x = torch::ones({4, 3});
  EXPECT_TRUE(stays_flat([&] { per_sample_gradients(module, params, x)["w"].square().sum().backward(); }));
}

TEST(EnsembleMemoryTest, StaysFlatForTrainingSteps) {
  const Ensemble<Linear> ensemble(3, [] { return Linear(3, 2); });
  torch::optim::Adam optimizer(ensemble.parameters(), 1e-3);
  const Tensor x = torch::ones({5, 3});
  const auto loss = [&](const TensorDict& p) { return functional_call(ensemble.structure(), p, x).square().sum(); };
  const TensorDict& params = ensemble.state().params;
  EXPECT_TRUE(stays_flat([&] {
    const torch::NoGradGuard no_grad;
    const auto [value, gradients] = vmap(value_and_grad(loss))(params);
    for (const auto& [path, gradient] : gradients.leaves()) params[path].mutable_grad() = gradient;
    optimizer.step();
  }));
}

/// A loss that throws at one of its places, which is chosen anew for each call.
class FailingLoss {
 public:
  static constexpr int kPlaces = 6;

  void choose() { place_ = static_cast<int>(random_() % kPlaces); }

  /// The places in order: at the start, in forward, behind it, in backward, with leaves that do not fit, with a result
  /// that is no loss.
  Tensor operator()(const TensorDict& params, const Tensor& x) {
    throw_at(0);
    if (place_ == 4) return functional_call(module_, TensorDict({{"w", x}}), x);
    const Tensor y = functional_call(module_, params, x.unsqueeze(0));
    throw_at(2);
    y.register_hook([this](const Tensor&) { throw_at(3); });
    return place_ == 5 ? y.square() : y.square().sum();
  }

  TensorDict params() { return from_module(module_, State::kParameters); }

 private:
  struct FailingImpl : RawImpl {
    explicit FailingImpl(const FailingLoss& owner) : loss(owner) {}
    Tensor forward(const Tensor& x) {
      const Tensor y = RawImpl::forward(x);
      loss.throw_at(1);
      return y;
    }
    const FailingLoss& loss;
  };

  void throw_at(int place) const {
    if (place_ == place) throw std::runtime_error("on purpose");
  }

  std::mt19937 random_{1};
  int place_ = 0;
  FailingImpl module_{*this};
};

TEST(FailureMemoryTest, StaysFlatForFunctionsThatThrow) {
  FailingLoss loss;
  const auto gradients = vmap(grad([&](const TensorDict& params, const Tensor& x) { return loss(params, x); }),
                              {.in_dims = {std::nullopt, 0}});
  const TensorDict params = loss.params();
  const Tensor x = torch::ones({4, 3});
  EXPECT_TRUE(stays_flat([&] {
    loss.choose();
    EXPECT_ANY_THROW(gradients(params, x));
  }));
}

}  // namespace
}  // namespace graft
