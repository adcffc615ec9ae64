// Twin: a net of the same classes that plain LibTorch gives the values which a swapped net reads, and what it computes.
//
//   Twin twin(seed);
//   const auto expected = twin.forward(net, scope, redirects);
//   if (expected) compare(net, *expected, outcome_of([&] { return net.forward(); }), /*with_gradients=*/true, seen);
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/random_net.h"
#include "tests/fuzz/redirects.h"
#include "tests/fuzz/swap_scope.h"

namespace graft::testing {

/// What a forward did.
struct Outcome {
  Tensor result;  ///< undefined if it threw
  std::string error;
};

template <typename Forward>
Outcome outcome_of(const Forward& forward) {
  try {
    return {forward(), ""};
  } catch (const c10::Error& error) {
    return {{}, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {{}, error.what()};
  }
}

/// Will forward write to it? In training always, else if the normalisation was made without it.
bool is_written_by_forward(const Cell& cell);

/// What the twin did, and what its handles stand for.
struct Comparison {
  Outcome expected;
  std::vector<Tensor> twin_values;  ///< one for each cell
  std::vector<Tensor> tensors;      ///< what the net reads there
};

class Twin {
 public:
  /// \param seed of the net
  explicit Twin(uint64_t seed) : net_(seed, Ties::kNone) {}

  /// Returns what the forward that follows in `net` has to give, or nothing where the twin cannot tell.
  std::optional<Comparison> forward(RandomNet& net, const SwapScope& scope, const Redirects& redirects);

 private:
  RandomNet net_;
};

/// How often each thing was seen.
struct ComparisonCounts {
  int64_t same_results = 0, same_failures = 0, gradients = 0;
};

/// Fails the test unless `got` is what is expected.
void compare(const RandomNet& net, const Comparison& expected, const Outcome& got, bool with_gradients,
             ComparisonCounts& counts);

}  // namespace graft::testing
