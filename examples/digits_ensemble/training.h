// What the two ways to train the members share: what they are told and what they tell.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>

namespace digits_ensemble {

inline constexpr double kLearningRate = 1e-3;

struct TrainingOptions {
  int64_t epochs;
  int64_t batch;
  uint64_t seed;
};

/// The members' losses, and how long the training steps took (choosing and gathering their digits included).
struct TrainingLog {
  at::Tensor losses;  // [epochs, steps, m]
  double step_seconds = 0;
};

/// Adds the time of its scope to `*seconds`.
class [[nodiscard]] ScopedTimer {
 public:
  explicit ScopedTimer(double* seconds) : seconds_(seconds), start_(std::chrono::steady_clock::now()) {}
  ~ScopedTimer() { *seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double* seconds_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace digits_ensemble
