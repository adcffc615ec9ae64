// Random: choices that a seed decides, the same with every standard library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

namespace graft::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  /// Returns a number in [0, bound).
  int64_t below(int64_t bound) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound)); }

  /// Says yes in so many of 100 cases.
  bool chance(int64_t percent) { return below(100) < percent; }

  template <typename T>
  const T& pick(const std::vector<T>& choices) {
    return choices[below(static_cast<int64_t>(choices.size()))];
  }

  template <typename T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[below(static_cast<int64_t>(i))]);
  }

 private:
  std::mt19937_64 engine_;
};

/// Returns the number that an environment variable holds, such as GRAFT_FUZZ_RUNS.
inline int64_t number_from(const char* variable, int64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoll(text);
}

}  // namespace graft::testing
