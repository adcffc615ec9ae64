#include "tensordict/loss.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>

#include "tensordict/internal/dtypes.h"
#include "tensordict/map.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

TensorDict loss(const char* call, const TensorDict& input, const TensorDict& target, int64_t reduction,
                LeafPairFunction of_leaves) {
  const std::string problems = describe_mismatch(target, input, {.dtypes = false, .devices = false});
  TORCH_CHECK_VALUE(problems.empty(), call, ": the target is not like the input:", problems);
  internal::check_dtypes(
      call, input, [](const at::Tensor& leaf) { return leaf.is_floating_point(); }, "a floating one");
  if (reduction == at::Reduction::None) return zip_map(input, target, of_leaves);
  return zip_map(input, target, of_leaves, {});
}

}  // namespace

TensorDict mse_loss(const TensorDict& input, const TensorDict& target, at::Reduction::Reduction reduction) {
  return loss("mse_loss", input, target, reduction,
              [&](const at::Tensor& x, const at::Tensor& y) { return at::mse_loss(x, y, reduction); });
}

TensorDict l1_loss(const TensorDict& input, const TensorDict& target, at::Reduction::Reduction reduction) {
  return loss("l1_loss", input, target, reduction,
              [&](const at::Tensor& x, const at::Tensor& y) { return at::l1_loss(x, y, reduction); });
}

TensorDict smooth_l1_loss(const TensorDict& input, const TensorDict& target, at::Reduction::Reduction reduction,
                          double beta) {
  return loss("smooth_l1_loss", input, target, reduction,
              [&](const at::Tensor& x, const at::Tensor& y) { return at::smooth_l1_loss(x, y, reduction, beta); });
}

}  // namespace graft
