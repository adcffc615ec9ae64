// What an ensemble of recurrent networks costs, beside its members one by one. (LibTorch alone cannot map them.)
//
//   ./bazelw run //benchmarks:recurrent_benchmark -- --benchmark_repetitions=9
//
// BM_<layer>Loop/b is forward and backward of each of 16 members, hidden size 32, on a batch of b sequences of length
// 20. BM_<layer>Grad/b gets the same gradients by vmap(grad), BM_<layer>Vmap/b by vmap and one backward pass.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <string>
#include <tuple>
#include <vector>

#include "benchmarks/run.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using benchmark::State;
using Tensors = std::vector<Tensor>;

constexpr int64_t kMembers = 16, kLength = 20, kInput = 32, kHidden = 32;

template <typename Layer>
struct Setup {
  explicit Setup(int64_t batch) : x(torch::randn({kLength, batch, kInput})) {
    for (int64_t i = 0; i < kMembers; ++i) members.emplace_back(kInput, kHidden);
    params = stack_module_state(members).params;
  }
  static Tensor loss(const Tensor& outputs) { return outputs.square().mean(); }
  auto loss_of_params() const {
    return [this](const TensorDict& p) { return loss(std::get<0>(functional_call(members[0], p, x))); };
  }

  std::vector<Layer> members;
  TensorDict params;
  Tensor x;
};

/// \returns the gradients of each member's parameters.
template <typename Layer>
std::vector<Tensors> by_loop(const Setup<Layer>& setup) {
  std::vector<Tensors> gradients;
  for (Layer layer : setup.members) {
    gradients.push_back(torch::autograd::grad({setup.loss(std::get<0>(layer(setup.x)))}, layer->parameters()));
  }
  return gradients;
}

template <typename Layer>
Tensors by_grad(const Setup<Layer>& setup) {
  return vmap(grad(setup.loss_of_params()))(setup.params).values();
}

template <typename Layer>
Tensors by_vmap(const Setup<Layer>& setup) {
  return torch::autograd::grad({vmap(setup.loss_of_params())(setup.params).sum()}, setup.params.values());
}

/// Stops the benchmark if the gradients [member, ...] are not those of the loop.
void check(const Tensors& gradients, const std::vector<Tensors>& expected) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    for (int64_t member = 0; member < kMembers; ++member) {
      TORCH_CHECK(gradients[i][member].allclose(expected[member][i], 1e-4, 1e-6), "wrong gradient of parameter ", i);
    }
  }
}

template <typename Layer>
void loop(State& state) {
  const Setup<Layer> setup(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(by_loop(setup));
}

template <typename Layer, Tensors gradients(const Setup<Layer>&)>
void batched(State& state) {
  const Setup<Layer> setup(state.range(0));
  check(gradients(setup), by_loop(setup));
  for (auto _ : state) benchmark::DoNotOptimize(gradients(setup));
}

template <typename Layer>
void register_benchmarks(const std::string& name) {
  const auto add = [](const std::string& full_name, void (*body)(State&)) {
    benchmark::RegisterBenchmark(full_name.c_str(), body)->Arg(1)->Arg(8)->Arg(32)->Unit(benchmark::kMicrosecond);
  };
  add("BM_" + name + "Loop", loop<Layer>);
  add("BM_" + name + "Grad", batched<Layer, by_grad<Layer>>);
  add("BM_" + name + "Vmap", batched<Layer, by_vmap<Layer>>);
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  graft::register_benchmarks<torch::nn::RNN>("Rnn");
  graft::register_benchmarks<torch::nn::GRU>("Gru");
  graft::register_benchmarks<torch::nn::LSTM>("Lstm");
  return graft::run_benchmarks(argc, argv);
}
