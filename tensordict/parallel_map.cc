#include "tensordict/parallel_map.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "tensordict/internal/for_all_leaves.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

using internal::Tensors;

/// How many elements are worth a thread; LibTorch splits its own loops so.
constexpr int64_t kFewElements = 32768;

bool is_worth_threads(const Tensors& values) {
  int64_t elements = 0;
  for (const at::Tensor& value : values) elements += value.numel();
  return values.size() > 1 && elements > kFewElements && !internal::any_transformed(values);
}

template <typename At>
Tensors results(const Tensors& values, bool on_threads, At at_position) {
  Tensors made(values.size());
  const auto make = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) made[static_cast<std::size_t>(i)] = at_position(static_cast<std::size_t>(i));
  };
  const auto count = static_cast<int64_t>(values.size());
  if (!on_threads) {
    make(0, count);
    return made;
  }
  const at::ThreadLocalState modes;
  at::parallel_for(0, count, /*grain_size=*/1, [&](int64_t begin, int64_t end) {
    const at::ThreadLocalStateGuard guard(modes);
    make(begin, end);
  });
  return made;
}

}  // namespace

TensorDict parallel_map(const TensorDict& tree, LeafFunction function) {
  const Tensors& values = tree.values();
  return tree.with_values(results(values, is_worth_threads(values), [&](std::size_t i) { return function(values[i]); }))
      .unlocked();
}

TensorDict parallel_zip_map(const TensorDict& left, const TensorDict& right, LeafPairFunction function) {
  const Tensors& values = left.values();
  const Tensors others = aligned_values("parallel_zip_map", left, right);
  const bool on_threads = is_worth_threads(values) && !internal::any_transformed(others);
  const auto at_position = [&](std::size_t i) { return function(values[i], others[i]); };
  return left.with_values(results(values, on_threads, at_position)).unlocked();
}

}  // namespace graft
