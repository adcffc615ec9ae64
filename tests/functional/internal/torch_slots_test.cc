// The slot table against the bytes of the objects: a handle that it lacks would keep an old tensor after a swap.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <set>

#include "functional/internal/module_slots.h"
#include "functional/internal/swap_plan.h"

namespace graft::internal {
namespace {

/// Looks at every word of `object` itself; what its vectors hold is not looked at.
template <typename Type>
void expect_every_handle_known(const std::shared_ptr<Type>& object) {
  std::set<const void*> registered, known;
  for (const auto& tensor : object->parameters(/*recurse=*/false)) registered.insert(tensor.unsafeGetTensorImpl());
  for (const auto& tensor : object->buffers(/*recurse=*/false)) registered.insert(tensor.unsafeGetTensorImpl());
  slots_of(*object).visit(*object, [&](std::string_view, at::Tensor& handle) { known.insert(&handle); });
  const char* const bytes = reinterpret_cast<const char*>(object.get());
  for (std::size_t offset = 0; offset + sizeof(void*) <= sizeof(Type); offset += alignof(void*)) {
    const void* word = nullptr;
    std::memcpy(&word, bytes + offset, sizeof(word));
    if (!registered.contains(word)) continue;
    EXPECT_TRUE(known.contains(bytes + offset)) << object->name() << " at offset " << offset;
  }
  const SwapPlan plan(*object);
  for (const Slot& slot : plan.slots()) {
    if (!slot.entry->defined()) continue;
    EXPECT_TRUE(slot.reach == Reach::kMembers || slot.reach == Reach::kRegistry)
        << object->name() << " entry " << slot.position;
  }
}

template <typename... Holders>
void expect_every_handle_known_in(Holders... holders) {
  (expect_every_handle_known(holders.ptr()), ...);
}

TEST(TorchSlotsTest, LacksNoHandleOfAModule) {
  namespace nn = torch::nn;
  const auto weight = torch::ones({3});
  expect_every_handle_known_in(
      nn::Linear(2, 3), nn::Bilinear(2, 3, 4), nn::Conv1d(2, 3, 1), nn::Conv2d(2, 3, 1), nn::Conv3d(2, 3, 1),
      nn::ConvTranspose1d(2, 3, 1), nn::ConvTranspose2d(2, 3, 1), nn::ConvTranspose3d(2, 3, 1), nn::BatchNorm1d(3),
      nn::BatchNorm2d(3), nn::BatchNorm3d(3),
      nn::InstanceNorm1d(nn::InstanceNorm1dOptions(3).affine(true).track_running_stats(true)),
      nn::InstanceNorm2d(nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true)),
      nn::InstanceNorm3d(nn::InstanceNorm3dOptions(3).affine(true).track_running_stats(true)),
      nn::LayerNorm(nn::LayerNormOptions({3})), nn::GroupNorm(1, 3), nn::Embedding(4, 3), nn::EmbeddingBag(4, 3),
      nn::PReLU(), nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).add_bias_kv(true)),
      nn::MultiheadAttention(nn::MultiheadAttentionOptions(4, 2).kdim(3).vdim(3)), nn::RNN(2, 3), nn::LSTM(2, 3),
      nn::GRU(2, 3), nn::RNNCell(2, 3), nn::LSTMCell(2, 3), nn::GRUCell(2, 3),
      nn::BCELoss(nn::BCELossOptions().weight(weight)),
      nn::BCEWithLogitsLoss(nn::BCEWithLogitsLossOptions().weight(weight).pos_weight(weight.clone())),
      nn::NLLLoss(nn::NLLLossOptions().weight(weight)),
      nn::CrossEntropyLoss(nn::CrossEntropyLossOptions().weight(weight)),
      nn::MultiMarginLoss(nn::MultiMarginLossOptions().weight(weight)),
      nn::MultiLabelSoftMarginLoss(nn::MultiLabelSoftMarginLossOptions().weight(weight)));
}

}  // namespace
}  // namespace graft::internal
