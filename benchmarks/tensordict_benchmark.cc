// What a tree of small leaves costs: what is done to handles, and what runs an operator on each leaf.
// compare_tensordict_with_python.py runs the same in Python beside it.
#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <benchmark/benchmark.h>
#include <c10/core/GradMode.h>
#include <malloc.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "benchmarks/run.h"
#include "tensordict/archive.h"
#include "tensordict/consolidate.h"
#include "tensordict/copy.h"
#include "tensordict/indexing.h"
#include "tensordict/join.h"
#include "tensordict/map.h"
#include "tensordict/memmap.h"
#include "tensordict/partition.h"
#include "tensordict/pointwise.h"
#include "tensordict/tensordict.h"

namespace graft {
namespace {

using at::Tensor;
using benchmark::State;

constexpr int64_t kMembers = 64;

/// Four leaves to a part, four parts to a block.
std::string path_of(int64_t i) {
  const char* const names[] = {"query", "key", "value", "out"};
  return "block" + std::to_string(i / 16) + ".layer" + std::to_string(i / 4 % 4) + "." + names[i % 4];
}

TensorDict make_tree(int64_t leaves) {
  TensorDict tree;
  for (int64_t i = 0; i < leaves; ++i) tree.set(path_of(i), at::zeros({4}));
  return tree;
}

TensorDict make_flat_tree(int64_t leaves) { return flatten_keys(make_tree(leaves), "/"); }

template <typename Run>
void measure(State& state, Run run) {
  const at::NoGradGuard no_grad;
  for (auto _ : state) benchmark::DoNotOptimize(run());
}

// --- Handles

void get(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  const std::string path = path_of(state.range(0) / 2);
  measure(state, [&]() -> const Tensor& { return tree[path]; });
}

void get_flat(State& state) {
  const TensorDict tree = make_flat_tree(state.range(0));
  const std::string name = tree.keys()->path(tree.size() / 2);
  measure(state, [&]() -> const Tensor& { return tree[name]; });
}

void set(State& state) {
  TensorDict tree = make_tree(state.range(0));
  const std::string path = path_of(state.range(0) / 2);
  const Tensor leaf = at::zeros({4});
  measure(state, [&] {
    tree.set(path, leaf);
    return tree.size();
  });
}

void iterate(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] {
    std::size_t length = 0;
    for (const auto& [path, leaf] : tree.leaves()) length += path.size() + (leaf.defined() ? 1 : 0);
    return length;
  });
}

void select_half(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  std::vector<std::string> half;
  for (int64_t i = 0; i < state.range(0); i += 2) half.push_back(path_of(i));
  measure(state, [&] { return select(tree, half).size(); });
}

void copy(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] {
    const TensorDict other = tree;
    return other.size();
  });
}

void lock(State& state) {
  TensorDict tree = make_tree(state.range(0));
  measure(state, [&] {
    tree.lock_();
    return tree.unlock_().size();
  });
}

// --- One operator a leaf

void map_half(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] { return map(tree, [](const Tensor& leaf) { return leaf * 0.5; }); });
}

void add(State& state) {
  const TensorDict tree = make_tree(state.range(0)), other = make_tree(state.range(0));
  measure(state, [&] { return tree + other; });
}

void clone_tree(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] { return clone(tree); });
}

std::vector<TensorDict> make_members(int64_t leaves) {
  std::vector<TensorDict> members;
  const TensorDict tree = make_tree(leaves);
  for (int64_t i = 0; i < kMembers; ++i) members.push_back(clone(tree));
  return members;
}

void stack_members(State& state) {
  const std::vector<TensorDict> members = make_members(state.range(0));
  measure(state, [&] { return stack(members); });
}

void index_member(State& state) {
  const TensorDict stacked = stack(make_members(state.range(0)));
  measure(state, [&] { return index(stacked, {3}); });
}

void consolidate_tree(State& state) {
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] { return Consolidated(tree).buffer(); });
}

// --- Files

/// A folder that is gone at the end.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / ("graft_benchmark_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

 private:
  const std::filesystem::path path_;
};

void save_file(State& state) {
  const Folder folder;
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] {
    save(tree, folder.path("tree.pt"));
    return tree.size();
  });
}

void load_file(State& state) {
  const Folder folder;
  save(make_tree(state.range(0)), folder.path("tree.pt"));
  measure(state, [&] { return load(folder.path("tree.pt")); });
}

void save_memmap(State& state) {
  const Folder folder;
  const TensorDict tree = make_tree(state.range(0));
  measure(state, [&] { return memmap(tree, folder.path("tree")); });
}

void load_memmap_folder(State& state) {
  const Folder folder;
  memmap(make_tree(state.range(0)), folder.path("tree"));
  measure(state, [&] { return load_memmap(folder.path("tree")); });
}

#define GRAFT_SIZES Arg(10)->Arg(184)->Arg(10000)
BENCHMARK(get)->Name("BM_Get")->GRAFT_SIZES;
BENCHMARK(get_flat)->Name("BM_GetFlat")->GRAFT_SIZES;
BENCHMARK(set)->Name("BM_Set")->GRAFT_SIZES;
BENCHMARK(iterate)->Name("BM_Iterate")->GRAFT_SIZES;
BENCHMARK(select_half)->Name("BM_Select")->GRAFT_SIZES;
BENCHMARK(copy)->Name("BM_Copy")->GRAFT_SIZES;
BENCHMARK(lock)->Name("BM_Lock")->GRAFT_SIZES;
BENCHMARK(map_half)->Name("BM_Map")->GRAFT_SIZES;
BENCHMARK(add)->Name("BM_Add")->GRAFT_SIZES;
BENCHMARK(clone_tree)->Name("BM_Clone")->GRAFT_SIZES;
BENCHMARK(stack_members)->Name("BM_Stack")->GRAFT_SIZES;
BENCHMARK(index_member)->Name("BM_Index")->GRAFT_SIZES;
BENCHMARK(consolidate_tree)->Name("BM_Consolidate")->GRAFT_SIZES;
BENCHMARK(save_file)->Name("BM_Save")->GRAFT_SIZES;
BENCHMARK(load_file)->Name("BM_Load")->GRAFT_SIZES;
BENCHMARK(save_memmap)->Name("BM_SaveMemmap")->GRAFT_SIZES;
BENCHMARK(load_memmap_folder)->Name("BM_LoadMemmap")->GRAFT_SIZES;

// --- Very large trees: time grows with the number of leaves, not faster

/// Also counts the bytes that a tree has for each leaf beside the tensor itself, and those of a copy.
void build(State& state) {
  const Tensor leaf = at::zeros({4});
  std::vector<std::string> paths;
  for (int64_t i = 0; i < state.range(0); ++i) paths.push_back(path_of(i));
  const auto make = [&] {
    TensorDict tree;
    for (const std::string& path : paths) tree.set(path, leaf);
    return tree;
  };
  for (auto _ : state) {
    TensorDict tree = make();
    benchmark::DoNotOptimize(tree);
    state.PauseTiming();
    tree = TensorDict();
    state.ResumeTiming();
  }
  const auto heap = [] { return static_cast<double>(mallinfo2().uordblks + mallinfo2().hblkhd); };
  const double before = heap();
  const TensorDict tree = make();
  const double built = heap();
  const TensorDict other = tree;
  const double copied = heap();
  state.counters["bytes_a_leaf"] = (built - before) / static_cast<double>(tree.size());
  state.counters["bytes_a_leaf_of_a_copy"] = (copied - built) / static_cast<double>(other.size());
  state.SetComplexityN(state.range(0));
}

void map_handles(State& state) {
  const Tensor leaf = at::zeros({4});
  TensorDict tree;
  for (int64_t i = 0; i < state.range(0); ++i) tree.set(path_of(i), leaf);
  measure(state, [&] { return map(tree, [](const Tensor& one) { return one; }); });
  state.SetComplexityN(state.range(0));
}

void destruct(State& state) {
  const Tensor leaf = at::zeros({4});
  std::vector<std::string> paths;
  for (int64_t i = 0; i < state.range(0); ++i) paths.push_back(path_of(i));
  for (auto _ : state) {
    state.PauseTiming();
    {
      TensorDict tree;
      for (const std::string& path : paths) tree.set(path, leaf);
      state.ResumeTiming();
    }
  }
  state.SetComplexityN(state.range(0));
}

#define GRAFT_LARGE RangeMultiplier(10)->Range(10000, 1000000)->Unit(benchmark::kMillisecond)->Complexity(benchmark::oN)
BENCHMARK(build)->Name("BM_Build")->GRAFT_LARGE;
BENCHMARK(map_handles)->Name("BM_MapHandles")->GRAFT_LARGE;
BENCHMARK(destruct)->Name("BM_Destruct")->GRAFT_LARGE;

}  // namespace
}  // namespace graft

int main(int argc, char** argv) { return graft::run_benchmarks(argc, argv); }
