#include "examples/digits_ensemble/bootstrap.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>

namespace digits_ensemble {
namespace {

/// No two members of one seed, nor of neighbouring seeds, share a stream.
constexpr uint64_t kStreamsPerSeed = 1'000'003;

}  // namespace

Bootstrap::Bootstrap(int64_t digits, int64_t batch, uint64_t seed, int64_t member)
    : batch_(batch), generator_(at::make_generator<at::CPUGeneratorImpl>(seed * kStreamsPerSeed + member + 1)) {
  TORCH_CHECK_VALUE(batch >= 1 && batch <= digits, "--batch=", batch, ": expected 1 to ", digits,
                    ", the number of training digits");
  drawn_ = at::randint(digits, {digits}, generator_, at::kLong);
}

at::Tensor Bootstrap::next_epoch() {
  const int64_t steps = drawn_.size(0) / batch_;
  const at::Tensor order = at::randperm(drawn_.size(0), generator_).narrow(0, 0, steps * batch_);
  return drawn_.index_select(0, order).view({steps, batch_});
}

}  // namespace digits_ensemble
