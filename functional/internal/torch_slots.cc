// The slot table's entries for torch::nn: every module that holds a registered tensor in a data member.
#include <torch/nn.h>

#include "functional/slots.h"

namespace {

using graft::internal::HandleVisitor;

/// Registers a class with a visitor of its own.
template <typename Type>
bool register_visitor(void (*visit)(void*, HandleVisitor), bool registry_only) {
  graft::internal::register_class_slots(
      {.cast = [](torch::nn::Module& module) -> void* { return dynamic_cast<Type*>(&module); },
       .visit = visit,
       .registry_only = registry_only});
  return true;
}

// A handle that an options object keeps behind an accessor.
#define GRAFT_OPTION_SLOT(Type, accessor)                                              \
  [[maybe_unused]] const bool Type##_##accessor = register_visitor<torch::nn::Type>(   \
      [](void* object, HandleVisitor visitor) {                                        \
        visitor(#accessor, static_cast<torch::nn::Type*>(object)->options.accessor()); \
      },                                                                               \
      /*registry_only=*/false);

GRAFT_OPTION_SLOT(BCELossImpl, weight)
GRAFT_OPTION_SLOT(BCEWithLogitsLossImpl, weight)
GRAFT_OPTION_SLOT(BCEWithLogitsLossImpl, pos_weight)
GRAFT_OPTION_SLOT(CrossEntropyLossImpl, weight)
GRAFT_OPTION_SLOT(MultiLabelSoftMarginLossImpl, weight)
GRAFT_OPTION_SLOT(MultiMarginLossImpl, weight)
GRAFT_OPTION_SLOT(NLLLossImpl, weight)
GRAFT_OPTION_SLOT(EmbeddingImpl, _weight)
GRAFT_OPTION_SLOT(EmbeddingBagImpl, _weight)

#undef GRAFT_OPTION_SLOT

// ParameterList and ParameterDict hand out what is registered: they have no members to set.
void visit_nothing(void*, HandleVisitor) {}
[[maybe_unused]] const bool list =
    register_visitor<torch::nn::ParameterListImpl>(visit_nothing, /*registry_only=*/true);
[[maybe_unused]] const bool dict =
    register_visitor<torch::nn::ParameterDictImpl>(visit_nothing, /*registry_only=*/true);

}  // namespace

GRAFT_SLOTS(torch::nn::LinearImpl, weight, bias)
GRAFT_SLOTS(torch::nn::BilinearImpl, weight, bias)
GRAFT_SLOTS(torch::nn::Conv1dImpl, weight, bias)
GRAFT_SLOTS(torch::nn::Conv2dImpl, weight, bias)
GRAFT_SLOTS(torch::nn::Conv3dImpl, weight, bias)
GRAFT_SLOTS(torch::nn::ConvTranspose1dImpl, weight, bias)
GRAFT_SLOTS(torch::nn::ConvTranspose2dImpl, weight, bias)
GRAFT_SLOTS(torch::nn::ConvTranspose3dImpl, weight, bias)
GRAFT_SLOTS(torch::nn::BatchNorm1dImpl, weight, bias, running_mean, running_var, num_batches_tracked)
GRAFT_SLOTS(torch::nn::BatchNorm2dImpl, weight, bias, running_mean, running_var, num_batches_tracked)
GRAFT_SLOTS(torch::nn::BatchNorm3dImpl, weight, bias, running_mean, running_var, num_batches_tracked)
GRAFT_SLOTS(torch::nn::InstanceNorm1dImpl, weight, bias, running_mean, running_var, num_batches_tracked)
GRAFT_SLOTS(torch::nn::InstanceNorm2dImpl, weight, bias, running_mean, running_var, num_batches_tracked)
GRAFT_SLOTS(torch::nn::InstanceNorm3dImpl, weight, bias, running_mean, running_var, num_batches_tracked)
GRAFT_SLOTS(torch::nn::LayerNormImpl, weight, bias)
GRAFT_SLOTS(torch::nn::GroupNormImpl, weight, bias)
GRAFT_SLOTS(torch::nn::EmbeddingImpl, weight)
GRAFT_SLOTS(torch::nn::EmbeddingBagImpl, weight)
GRAFT_SLOTS(torch::nn::PReLUImpl, weight)
GRAFT_SLOTS(torch::nn::MultiheadAttentionImpl, in_proj_weight, in_proj_bias, bias_k, bias_v, q_proj_weight,
            k_proj_weight, v_proj_weight)
GRAFT_SLOTS(torch::nn::RNNImpl, flat_weights_)
GRAFT_SLOTS(torch::nn::LSTMImpl, flat_weights_)
GRAFT_SLOTS(torch::nn::GRUImpl, flat_weights_)
GRAFT_SLOTS(torch::nn::RNNCellImpl, weight_ih, weight_hh, bias_ih, bias_hh)
GRAFT_SLOTS(torch::nn::LSTMCellImpl, weight_ih, weight_hh, bias_ih, bias_hh)
GRAFT_SLOTS(torch::nn::GRUCellImpl, weight_ih, weight_hh, bias_ih, bias_hh)
GRAFT_SLOTS(torch::nn::NLLLossImpl, weight)
GRAFT_SLOTS(torch::nn::CrossEntropyLossImpl, weight)
GRAFT_SLOTS(torch::nn::BCEWithLogitsLossImpl, weight, pos_weight)
