// BatchNormGuard: what normalization layers do with their running statistics, for a scope.
//
//   {
//     const BatchNormGuard guard(net, BatchNormPolicy::kBatchStatistics);
//     TensorDict grads = vmap(grad(loss), {.in_dims = {std::nullopt, 0, 0}})(params, x, y);
//   }  // net normalizes as before
//
// A layer that trains writes its running statistics in place. Under a transform that is refused where one tensor would
// have to take what many samples write. There are three ways out:
//   - statistics of each member: the buffers are leaves of the transform like the parameters, mapped or differentiated
//     with them, and each member writes its own. This needs no guard: Ensemble and functional_call(net, {params,
//     buffers}, x) do it.
//   - kBatchStatistics: running statistics are neither read nor written.
//   - kFrozen: they are read and not written.
// Dropout is a matter of vmap's options (Randomness), or of `net.eval()`.
#pragma once

#include <functional>
#include <vector>

#include "functional/internal/module_claim.h"
#include "functional/module_ref.h"

namespace graft {

enum class BatchNormPolicy {
  kBatchStatistics,  ///< normalize by the mean and variance of the input itself, in training and in evaluation
  kFrozen,           ///< normalize by the running mean and variance, as in evaluation; the rest of the module may train
};

/// Gives a policy to every BatchNorm1d/2d/3d and InstanceNorm1d/2d/3d that keeps running statistics, in a module and
/// below it, classes derived from them included. The end of the scope undoes that.
///
/// The statistics stay registered as buffers: module_state finds them, and a call may have leaves for them.
/// Guards nest, and must end in the opposite order. A layer that is replaced while its guard lasts is not followed.
/// Modules of other classes that call batch_norm by themselves, and TorchScript modules, are left as they are.
/// Python: kBatchStatistics is torch.func.replace_all_batch_norm_modules_, which cannot be undone and leaves
/// InstanceNorm alone.
class [[nodiscard]] BatchNormGuard {
 public:
  /// \param module outlives the guard.
  /// \throws c10::Error if another thread has swapped or is calling the module.
  BatchNormGuard(const ModuleRef& module, BatchNormPolicy policy);
  ~BatchNormGuard();
  BatchNormGuard(const BatchNormGuard&) = delete;
  BatchNormGuard& operator=(const BatchNormGuard&) = delete;

 private:
  internal::ModuleClaim claim_;
  std::vector<std::function<void()>> undo_;
};

}  // namespace graft
