#include "functional/internal/transform_level.h"

#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <ATen/ops/_make_dual.h>
#include <ATen/ops/_unpack_dual.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <algorithm>
#include <mutex>

#include "functional/rules/wrapped_value.h"

namespace graft::internal {
namespace {

namespace functorch = at::functorch;

functorch::RandomnessType to_functorch(Randomness randomness) {
  switch (randomness) {
    case Randomness::kError:
      return functorch::RandomnessType::Error;
    case Randomness::kSame:
      return functorch::RandomnessType::Same;
    case Randomness::kDifferent:
      return functorch::RandomnessType::Different;
  }
  TORCH_INTERNAL_ASSERT(false, "not a Randomness: ", static_cast<int>(randomness));
}

int64_t push_grad_layer() {
  return functorch::initAndPushDynamicLayer(functorch::TransformType::Grad, /*batch_size=*/std::nullopt,
                                            /*randomness=*/std::nullopt,
                                            /*prev_grad_mode=*/c10::GradMode::is_enabled(),
                                            /*prev_fwd_grad_mode=*/std::nullopt,
                                            /*functionalize_add_back_views=*/std::nullopt,
                                            /*prev_inference_mode=*/c10::InferenceMode::is_enabled());
}

int64_t push_jvp_layer() {
  return functorch::initAndPushDynamicLayer(functorch::TransformType::Jvp, /*batch_size=*/std::nullopt,
                                            /*randomness=*/std::nullopt, /*prev_grad_mode=*/std::nullopt,
                                            c10::AutogradState::get_tls_state().get_fw_grad_mode(),
                                            /*functionalize_add_back_views=*/std::nullopt,
                                            c10::InferenceMode::is_enabled());
}

std::optional<c10::InferenceMode> inference_mode_off() {
  if (!c10::InferenceMode::is_enabled()) return std::nullopt;
  return std::optional<c10::InferenceMode>(std::in_place, /*enabled=*/false);
}

/// Returns the hidden dim of `tensor` at a level, as part of its implementation, or nullptr.
functorch::BatchedTensorImpl* batched_at(const at::Tensor& tensor, int64_t level) {
  auto* batched = functorch::maybeGetBatchedImpl(tensor);
  return batched != nullptr && batched->level() == level ? batched : nullptr;
}

functorch::TensorWrapper* wrapper_at(const at::Tensor& tensor, int64_t level) {
  auto* wrapper = functorch::maybeGetTensorWrapper(tensor);
  return wrapper != nullptr && wrapper->level() == level ? wrapper : nullptr;
}

/// Returns what `tensor` is below a level; a tensor of another level as it is.
at::Tensor unwrapped_at(const at::Tensor& tensor, int64_t level) {
  const auto* wrapper = wrapper_at(tensor, level);
  return wrapper != nullptr ? wrapper->value() : tensor;
}

/// Does the same for a result, which must have memory. The zeros made here may be wrapped again.
at::Tensor value_below(const at::Tensor& tensor, int64_t level) {
  return unwrapped_at(with_memory(unwrapped_at(tensor, level)), level);
}

}  // namespace

TransformLevel::~TransformLevel() { functorch::popDynamicLayerAndDeleteMetadata(); }

VmapLevel::VmapLevel(int64_t batch_size, Randomness randomness)
    : TransformLevel(functorch::initAndPushDynamicLayer(functorch::TransformType::Vmap, c10::SymInt(batch_size),
                                                        to_functorch(randomness))),
      batch_size_(batch_size) {}

at::Tensor VmapLevel::batch(const at::Tensor& tensor, int64_t dim) const {
  return functorch::makeBatched(functorch::unwrapIfDead(tensor), dim, number());
}

at::Tensor VmapLevel::unbatch(const at::Tensor& tensor, int64_t dim) const {
  const at::Tensor alive = functorch::unwrapIfDead(tensor);
  if (const auto* batched = batched_at(alive, number())) {
    const at::Tensor value = with_memory(batched->value());
    return batched->bdim() == dim ? value : value.movedim(batched->bdim(), dim);
  }
  auto sizes = alive.sizes().vec();
  sizes.insert(sizes.begin() + dim, batch_size_);
  return alive.unsqueeze(dim).expand(sizes);
}

bool VmapLevel::is_batched(const at::Tensor& tensor) const {
  return batched_at(functorch::unwrapIfDead(tensor), number()) != nullptr;
}

GradLevel::GradLevel()
    : TransformLevel(push_grad_layer()),
      outer_grad_mode_(c10::GradMode::is_enabled()),
      no_inference_mode_(inference_mode_off()),
      grad_mode_(/*enabled=*/true) {}

at::Tensor GradLevel::wrap(const at::Tensor& tensor) const {
  return functorch::makeTensorWrapper(functorch::unwrapIfDead(tensor), number());
}

at::Tensor GradLevel::unwrap(const at::Tensor& tensor) const { return value_below(tensor, number()); }

bool GradLevel::requires_grad(const at::Tensor& tensor) const {
  return wrapper_at(tensor, number()) != nullptr && tensor.requires_grad();
}

bool GradLevel::is_differentiated_outside(const at::Tensor& tensor) const {
  return is_differentiated_forward() || (outer_grad_mode_ && requires_grad_on_any_level(unwrap(tensor)));
}

namespace {

/// How many hold the level of forward-mode derivatives, and whether the first of them has opened it.
struct ForwardHolders {
  std::mutex mutex;
  int64_t count = 0;
  bool opened = false;

  static ForwardHolders& get() {
    static auto* const holders = new ForwardHolders;  // threads may outlive the statics of the process
    return *holders;
  }
};

}  // namespace

ForwardDerivatives::ForwardDerivatives() {
  ForwardHolders& holders = ForwardHolders::get();
  const std::lock_guard lock(holders.mutex);
  if (holders.count == 0) {
    // The program may have opened it itself.
    holders.opened = torch::autograd::ForwardADLevel::try_get_by_idx(0) == nullptr;
    if (holders.opened) torch::autograd::ForwardADLevel::get_next_idx();
  }
  ++holders.count;
}

ForwardDerivatives::~ForwardDerivatives() {
  ForwardHolders& holders = ForwardHolders::get();
  const std::lock_guard lock(holders.mutex);
  if (--holders.count == 0 && holders.opened) torch::autograd::ForwardADLevel::release_idx(0);
}

JvpLevel::JvpLevel()
    : TransformLevel(push_jvp_layer()), no_inference_mode_(inference_mode_off()), forward_mode_(/*enabled=*/true) {}

at::Tensor JvpLevel::with_tangent(const at::Tensor& tensor, const at::Tensor& tangent) const {
  return at::_make_dual(functorch::unwrapIfDead(tensor), functorch::unwrapIfDead(tangent), /*level=*/0);
}

at::Tensor JvpLevel::value(const at::Tensor& tensor) const { return value_below(tensor, number()); }

at::Tensor JvpLevel::tangent(const at::Tensor& tensor) const {
  if (wrapper_at(tensor, number()) == nullptr) return {};
  const at::Tensor tangent = std::get<1>(at::_unpack_dual(tensor, /*level=*/0));
  return tangent.defined() ? value(tangent) : tangent;
}

at::Tensor with_memory(const at::Tensor& tensor) { return tensor._is_zerotensor() ? at::zeros_like(tensor) : tensor; }

at::Tensor without_ended_level(const at::Tensor& tensor) { return functorch::unwrapIfDead(tensor); }

bool is_differentiated_forward() {
  const auto& stack = functorch::getDynamicLayerStack();
  return std::any_of(stack.begin(), stack.end(),
                     [](const functorch::DynamicLayer& layer) { return layer.key() == functorch::TransformType::Jvp; });
}

int64_t depth() { return static_cast<int64_t>(functorch::getDynamicLayerStack().size()); }

}  // namespace graft::internal
