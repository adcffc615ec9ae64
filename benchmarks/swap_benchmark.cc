// What it costs to install leaves in a module for a scope, beside the least that any way of doing it must do: a
// prepared list of registry entries and members that is swapped, assigned, and put back (the floors).
//
//   ./bazelw run //benchmarks:swap_benchmark -- --benchmark_repetitions=9
//
// BM_Swap<module><leaves> is one ToModuleGuard, made and destroyed, when a plan of the module is at hand. Leaves are
// plain (each enters as an alias that requires grad), with grad or batched by vmap (both enter as they are).
#include <benchmark/benchmark.h>
#include <torch/torch.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "functional/internal/grad_alias.h"
#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/module_state.h"
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

void swap(State& state, Module& module, const TensorDict& leaves) {
  const TensorDict before = from_module(module);
  for (auto _ : state) {
    const ToModuleGuard guard(leaves, module);
    benchmark::ClobberMemory();
  }
  check_holds(module, before);
  state.counters["leaves"] = static_cast<double>(leaves.size());
}

void swap_plain(State& state, Module& module) { swap(state, module, plain_leaves(module)); }

void swap_grad(State& state, Module& module) { swap(state, module, leaves_with_grad(module)); }

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
      TORCH_CHECK(!handles.members.empty(), "no member holds ", item.key());
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
          {"Transformer", torch::nn::Transformer(torch::nn::TransformerOptions()).ptr()}};
}

void register_benchmarks() {
  using Body = void (*)(State&, Module&);
  const std::vector<std::pair<std::string, Body>> bodies = {{"Floor", floor},
                                                            {"Grad", swap_grad},
                                                            {"Batched", swap_batched},
                                                            {"PlainFloor", plain_floor},
                                                            {"Plain", swap_plain}};
  for (const auto& [name, module] : modules()) {
    for (const auto& [kind, body] : bodies) {
      benchmark::RegisterBenchmark(("BM_Swap" + name + kind).c_str(),
                                   [module = module, body = body](State& state) { body(state, *module); });
    }
  }
}

}  // namespace
}  // namespace graft

int main(int argc, char** argv) {
  at::set_num_threads(1);
  graft::register_benchmarks();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
