// What transforms cost. Each benchmark first compares what it gets with a loop that uses ordinary autograd alone.
// compare_transforms_with_python.py measures the same in turns with torch.func.
//
//   ./bazelw run //benchmarks:transforms_benchmark -- --benchmark_repetitions=9
//
// BM_PerSampleGrad<net> is vmap(grad) of the loss of a batch, BM_HessianMlp the Hessian of sum f(x)^2 of one sample,
// BM_NestedVmap 8 networks on 64 samples each, by two levels. BM_Ensemble<what>/m has m networks 32-64-10 on a batch of
// 32: forward, its gradients by one backward pass, or by vmap(grad).
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <vector>

#include "benchmarks/run.h"
#include "functional/functional_call.h"
#include "functional/grad.h"
#include "functional/module_state.h"
#include "vmap/jacobian.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using benchmark::State;
using torch::nn::Conv2d, torch::nn::Conv2dOptions, torch::nn::Flatten, torch::nn::Linear, torch::nn::MaxPool2d;
using torch::nn::MaxPool2dOptions, torch::nn::ReLU, torch::nn::Sequential, torch::nn::Tanh;
using Tensors = std::vector<Tensor>;

/// Measures `run` if its values are those of `by_loop`, which are stacked over the loop.
void measure(State& state, const std::function<Tensors()>& run, const std::vector<Tensors>& by_loop) {
  const Tensors values = run();
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t sample = 0; sample < by_loop.size(); ++sample) {
      const Tensor got = values[i][static_cast<int64_t>(sample)];
      TORCH_CHECK(got.allclose(by_loop[sample][i], 1e-3, 1e-5), "tensor ", i, " of sample ", sample, " is wrong");
    }
  }
  for (auto _ : state) benchmark::DoNotOptimize(run());
}

Sequential make_mlp() { return Sequential(Linear(32, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 10)); }

Sequential make_small_cnn() {
  return Sequential(Conv2d(Conv2dOptions(1, 4, 3).padding(1)), ReLU(), Conv2d(Conv2dOptions(4, 8, 3).padding(1)),
                    ReLU(), Flatten(), Linear(8 * 8 * 8, 10));
}

Sequential make_large_cnn() {
  return Sequential(Conv2d(Conv2dOptions(1, 16, 8).stride(2).padding(3)), ReLU(),
                    MaxPool2d(MaxPool2dOptions(2).stride(1)), Conv2d(Conv2dOptions(16, 32, 4).stride(2)), ReLU(),
                    MaxPool2d(MaxPool2dOptions(2).stride(1)), Flatten(), Linear(32 * 4 * 4, 32), ReLU(),
                    Linear(32, 10));
}

// --- Gradients for each sample

void per_sample_grad(State& state, Sequential net, const Tensor& x) {
  const Tensor y = torch::randint(10, {x.size(0)});
  const TensorDict params = from_module(net);
  const auto loss = [&](const TensorDict& p, const Tensor& sample, const Tensor& label) {
    return torch::cross_entropy_loss(functional_call(net, p, sample.unsqueeze(0)), label.unsqueeze(0));
  };
  std::vector<Tensors> by_loop;
  for (int64_t i = 0; i < x.size(0); ++i) {
    by_loop.push_back(torch::autograd::grad({loss(params, x[i], y[i])}, params.values()));
  }
  const auto gradients = vmap(grad(loss), {.in_dims = {std::nullopt, 0, 0}});
  measure(
      state, [&] { return gradients(params, x, y).values(); }, by_loop);
}

void per_sample_grad_mlp(State& state) { per_sample_grad(state, make_mlp(), torch::randn({64, 32})); }

void per_sample_grad_small_cnn(State& state) { per_sample_grad(state, make_small_cnn(), torch::randn({16, 1, 8, 8})); }

void per_sample_grad_large_cnn(State& state) {
  per_sample_grad(state, make_large_cnn(), torch::randn({64, 1, 28, 28}));
}

// --- A Hessian, and nested levels

void hessian_mlp(State& state) {
  Sequential net(Linear(32, 64), Tanh(), Linear(64, 64), Tanh(), Linear(64, 10));
  for (Tensor& parameter : net->parameters()) parameter.requires_grad_(false);
  const auto f = [&](const Tensor& x) { return net->forward(x).square().sum(); };
  const Tensor x = torch::randn({32});
  const Tensor leaf = x.clone().requires_grad_();
  const Tensor gradient = torch::autograd::grad({f(leaf)}, {leaf}, {}, std::nullopt, /*create_graph=*/true)[0];
  std::vector<Tensors> rows;
  for (int64_t i = 0; i < x.size(0); ++i) {
    rows.push_back(torch::autograd::grad({gradient[i]}, {leaf}, {}, /*retain_graph=*/true));
  }
  const auto second = hessian(f);
  measure(
      state, [&] { return Tensors{second(x)}; }, rows);
}

void nested_vmap(State& state) {
  const torch::NoGradGuard no_grad;
  std::vector<Sequential> nets;
  std::vector<Tensors> by_loop;
  const Tensor x = torch::randn({64, 32});
  for (int64_t i = 0; i < 8; ++i) {
    nets.push_back(make_mlp());
    by_loop.push_back({nets.back()->forward(x)});
  }
  const TensorDict params = stack_module_state(nets).params;
  const auto forward = [&](const TensorDict& p, const Tensor& sample) { return functional_call(nets[0], p, sample); };
  const auto all = vmap(vmap(forward, {.in_dims = {std::nullopt, 0}}), {.in_dims = {0, std::nullopt}});
  measure(
      state, [&] { return Tensors{all(params, x)}; }, by_loop);
}

// --- Ensembles

struct Ensemble {
  explicit Ensemble(int64_t size) {
    for (int64_t i = 0; i < size; ++i) nets.push_back(Sequential(Linear(32, 64), ReLU(), Linear(64, 10)));
    params = stack_module_state(nets).params;
  }
  Tensor loss_of(const Tensor& outputs) const { return (outputs - y).square().mean({-2, -1}); }

  std::vector<Tensors> outputs_by_loop() {
    std::vector<Tensors> all;
    for (Sequential& net : nets) all.push_back({net->forward(x)});
    return all;
  }
  std::vector<Tensors> gradients_by_loop() {
    std::vector<Tensors> all;
    for (Sequential& net : nets) all.push_back(torch::autograd::grad({loss_of(net->forward(x))}, net->parameters()));
    return all;
  }

  std::vector<Sequential> nets;
  TensorDict params;
  Tensor x = torch::randn({32, 32}), y = torch::randn({32, 10});
};

void ensemble_forward(State& state) {
  const torch::NoGradGuard no_grad;
  Ensemble ensemble(state.range(0));
  const auto forward = [&](const TensorDict& p, const Tensor& x) { return functional_call(ensemble.nets[0], p, x); };
  const auto all = vmap(forward, {.in_dims = {0, std::nullopt}});
  measure(
      state, [&] { return Tensors{all(ensemble.params, ensemble.x)}; }, ensemble.outputs_by_loop());
}

void ensemble_backward(State& state) {
  Ensemble ensemble(state.range(0));
  const auto forward = [&](const TensorDict& p, const Tensor& x) { return functional_call(ensemble.nets[0], p, x); };
  const auto all = vmap(forward, {.in_dims = {0, std::nullopt}});
  const auto run = [&] {
    const Tensor loss = ensemble.loss_of(all(ensemble.params, ensemble.x)).sum();
    return torch::autograd::grad({loss}, ensemble.params.values());
  };
  measure(state, run, ensemble.gradients_by_loop());
}

void ensemble_grad(State& state) {
  Ensemble ensemble(state.range(0));
  const TensorDict params = ensemble.params.map([](const Tensor& leaf) { return leaf.detach(); });
  const auto loss = [&](const TensorDict& p, const Tensor& x) {
    return ensemble.loss_of(functional_call(ensemble.nets[0], p, x));
  };
  const auto all = vmap(grad(loss), {.in_dims = {0, std::nullopt}});
  measure(
      state, [&] { return all(params, ensemble.x).values(); }, ensemble.gradients_by_loop());
}

BENCHMARK(per_sample_grad_mlp)->Name("BM_PerSampleGradMlp");
BENCHMARK(per_sample_grad_small_cnn)->Name("BM_PerSampleGradSmallCnn");
BENCHMARK(per_sample_grad_large_cnn)->Name("BM_PerSampleGradLargeCnn");
BENCHMARK(hessian_mlp)->Name("BM_HessianMlp");
BENCHMARK(nested_vmap)->Name("BM_NestedVmap");
BENCHMARK(ensemble_forward)->Name("BM_EnsembleForward")->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(ensemble_backward)->Name("BM_EnsembleBackward")->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(ensemble_grad)->Name("BM_EnsembleGrad")->Arg(8)->Arg(64)->Arg(256);

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  torch::manual_seed(0);
  return graft::run_benchmarks(argc, argv);
}
