// What it costs to install leaves in a module for a scope, beside the least that any way of doing it must do: a
// prepared list of registry entries and members that is swapped, assigned, and put back (the floors).
//
//   ./bazelw run //benchmarks:swap_benchmark -- --benchmark_repetitions=9
//
// BM_Swap<module><way> is one ToModuleGuard, made and destroyed, when a plan of the module is at hand. Leaves are plain
// (each enters as an alias that requires grad), with grad or batched by vmap (both enter as they are), or copied in
// place. Call is the scope of a functional_call without the call, ForGood two writes without a guard, there and back.
// BM_SwapLayers<way>/n has n parameters. BM_Add is an operator, with and without a redirect.
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/run.h"
#include "functional/internal/call_scope.h"
#include "functional/internal/grad_alias.h"
#include "functional/internal/leaf_redirect.h"
#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/module_state.h"
#include "functional/tensordict_params.h"
#include "functional/to_module.h"
#include "tensordict/map.h"
#include "vmap/vmap.h"

namespace graft {
namespace {

using benchmark::State;
using torch::nn::Module;

TensorDict plain_leaves(Module& module) {
  return map(from_module(module), [](const Tensor& value) { return value.detach().clone(); });
}

TensorDict leaves_with_grad(Module& module) {
  return map(from_module(module), [](const Tensor& value) { return value.detach().clone().requires_grad_(); });
}

/// Stops the benchmark if the module does not hold what it should.
void check_holds(Module& module, const TensorDict& expected) {
  const TensorDict held = from_module(module);
  TORCH_CHECK(held.size() == expected.size(), "the module lost entries");
  for (std::size_t i = 0; i < held.size(); ++i) {
    TORCH_CHECK(held.values()[i].data_ptr() == expected.values()[i].data_ptr(), "wrong value: ", held.keys()->path(i));
  }
}

// --- What Graft does

void swap(State& state, Module& module, const TensorDict& leaves, const ToModuleOptions& options = {}) {
  const TensorDict before = from_module(module);
  for (auto _ : state) {
    const ToModuleGuard guard(leaves, module, options);
    benchmark::ClobberMemory();
  }
  check_holds(module, before);
  state.counters["leaves"] = static_cast<double>(leaves.size());
}

void swap_plain(State& state, Module& module) { swap(state, module, plain_leaves(module)); }

void swap_grad(State& state, Module& module) { swap(state, module, leaves_with_grad(module)); }

void swap_in_place(State& state, Module& module) { swap(state, module, plain_leaves(module), {.inplace = true}); }

void swap_for_good(State& state, Module& module) {
  const TensorDict before = from_module(module);
  const TensorDict leaves = leaves_with_grad(module);
  for (auto _ : state) {
    to_module(leaves, module, {.return_swap = false});
    benchmark::ClobberMemory();
    to_module(before, module, {.return_swap = false});
  }
  check_holds(module, before);
}

void call_scope(State& state, Module& module, bool concurrent) {
  const TensorDict before = from_module(module);
  const TensorDict leaves = leaves_with_grad(module);
  for (auto _ : state) {
    internal::CallScope scope(module, {&leaves}, concurrent);
    benchmark::ClobberMemory();
    scope.note_met();  // as functional_call does; the first call of a module looks for handles that are not known
  }
  check_holds(module, before);
}

void exclusive_call(State& state, Module& module) { call_scope(state, module, /*concurrent=*/false); }

void concurrent_call(State& state, Module& module) { call_scope(state, module, /*concurrent=*/true); }

void swap_batched(State& state, Module& module) {
  const auto two_of_each = [](const Tensor& value) { return torch::stack({value.detach(), value.detach()}); };
  const auto in_a_level = [&](const TensorDict& leaves) {
    swap(state, module, leaves);
    return torch::zeros({});
  };
  vmap(in_a_level)(map(from_module(module), two_of_each));
}

// --- The floors

/// One parameter in a prepared list.
struct Handles {
  Tensor* entry;
  std::vector<Tensor*> members;
  Tensor value;
};

std::vector<Handles> prepare(Module& module, const TensorDict& leaves) {
  std::vector<Handles> list;
  for (const auto& part : module.modules()) {
    for (auto& item : internal::parameter_registry(*part)) {
      if (!item.value().defined()) continue;
      Handles handles{.entry = &item.value(), .members = {}, .value = leaves.values()[list.size()]};
      internal::slots_of(*part).visit(*part, [&](std::string_view, Tensor& member) {
        if (member.is_same(item.value())) handles.members.push_back(&member);
      });
      TORCH_CHECK(!handles.members.empty() || internal::slots_of(*part).registry_only(), "no member: ", item.key());
      list.push_back(std::move(handles));
    }
  }
  return list;
}

void exchange(std::vector<Handles>& list) {
  for (Handles& handles : list) {
    std::swap(*handles.entry, handles.value);
    for (Tensor* member : handles.members) *member = *handles.entry;
  }
}

void floor(State& state, Module& module) {
  const TensorDict before = from_module(module);
  std::vector<Handles> list = prepare(module, leaves_with_grad(module));
  for (auto _ : state) {
    exchange(list);
    benchmark::ClobberMemory();
    exchange(list);
  }
  check_holds(module, before);
}

void plain_floor(State& state, Module& module) {
  const TensorDict before = from_module(module);
  const TensorDict leaves = plain_leaves(module);
  std::vector<Handles> list = prepare(module, leaves);
  for (auto _ : state) {
    for (std::size_t i = 0; i < list.size(); ++i) list[i].value = internal::alias_with_grad(leaves.values()[i]);
    exchange(list);
    benchmark::ClobberMemory();
    exchange(list);
    for (Handles& handles : list) handles.value.reset();
  }
  check_holds(module, before);
}

void in_place_floor(State& state, Module& module) {
  const TensorDict before = from_module(module);
  const TensorDict leaves = plain_leaves(module);
  const at::NoGradGuard no_grad;
  for (auto _ : state) {
    std::vector<Tensor> saved;
    for (const Tensor& held : before.values()) saved.push_back(held.clone());
    for (std::size_t i = 0; i < saved.size(); ++i) before.values()[i].copy_(leaves.values()[i]);
    benchmark::ClobberMemory();
    for (std::size_t i = 0; i < saved.size(); ++i) before.values()[i].copy_(saved[i]);
  }
}

// --- Other mechanisms

/// The Transformer's sizes as a TorchScript module without code.
void swap_script(State& state) {
  torch::jit::Module module("Parameters");
  const torch::nn::Transformer transformer{torch::nn::TransformerOptions()};
  for (const auto& item : transformer->named_parameters()) {
    std::string name = item.key();
    std::replace(name.begin(), name.end(), '.', '_');
    module.register_parameter(name, item.value(), /*is_buffer=*/false);
  }
  const TensorDict leaves =
      map(from_module(module), [](const Tensor& value) { return value.detach().clone().requires_grad_(); });
  for (auto _ : state) {
    const ToModuleGuard guard(leaves, module);
    benchmark::ClobberMemory();
  }
}

/// A module of `state.range(0)` parameters. Large ones are out of the caches, for the floor too.
void swap_layers(State& state, void (*body)(State&, Module&)) {
  torch::nn::Sequential layers;
  for (int64_t i = 0; i < state.range(0) / 2; ++i) layers->push_back(torch::nn::Linear(1, 1));
  body(state, *layers);
  state.counters["per_parameter"] = benchmark::Counter(
      static_cast<double>(state.range(0)), benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void add(State& state) {
  const Tensor left = torch::rand({4, 4}), right = torch::rand({4, 4});
  for (auto _ : state) benchmark::DoNotOptimize(at::add(left, right));
}

void add_redirected(State& state) {
  const Tensor old_tensor = torch::rand({4, 4}), leaf = torch::rand({4, 4}), right = torch::rand({4, 4});
  const internal::RedirectScope scope({{old_tensor, leaf}});
  TORCH_CHECK(at::add(old_tensor, right).equal(at::add(leaf, right)), "nothing was redirected");
  for (auto _ : state) benchmark::DoNotOptimize(at::add(old_tensor, right));
}

// --- The table

struct NamedModule {
  std::string name;
  std::shared_ptr<Module> module;
};

std::vector<NamedModule> modules() {
  torch::nn::Sequential layers;
  for (int i = 0; i < 100; ++i) layers->push_back(torch::nn::Linear(16, 16));
  return {{"Linear", torch::nn::Linear(3, 4).ptr()},
          {"100Linears", layers.ptr()},
          {"Transformer", torch::nn::Transformer(torch::nn::TransformerOptions()).ptr()},
          {"Lstm", torch::nn::LSTM(torch::nn::LSTMOptions(16, 16).num_layers(4)).ptr()},
          {"TensorDictParams", TensorDictParams(plain_leaves(*layers)).ptr()}};
}

void register_benchmarks() {
  using Body = void (*)(State&, Module&);
  const std::vector<std::pair<std::string, Body>> bodies = {{"Floor", floor},
                                                            {"Grad", swap_grad},
                                                            {"Batched", swap_batched},
                                                            {"Call", exclusive_call},
                                                            {"ConcurrentCall", concurrent_call},
                                                            {"ForGood", swap_for_good},
                                                            {"PlainFloor", plain_floor},
                                                            {"Plain", swap_plain},
                                                            {"InPlaceFloor", in_place_floor},
                                                            {"InPlace", swap_in_place}};
  for (const auto& [name, module] : modules()) {
    for (const auto& [kind, body] : bodies) {
      benchmark::RegisterBenchmark(("BM_Swap" + name + kind).c_str(),
                                   [module = module, body = body](State& state) { body(state, *module); });
    }
  }
  benchmark::RegisterBenchmark("BM_SwapScript", swap_script);
  benchmark::RegisterBenchmark("BM_SwapLayersFloor", swap_layers, floor)->RangeMultiplier(10)->Range(10, 100'000);
  benchmark::RegisterBenchmark("BM_SwapLayersGrad", swap_layers, swap_grad)->RangeMultiplier(10)->Range(10, 100'000);
  benchmark::RegisterBenchmark("BM_Add", add);
  benchmark::RegisterBenchmark("BM_AddRedirected", add_redirected);
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  graft::register_benchmarks();
  return graft::run_benchmarks(argc, argv);
}
