// Loss and distance modules; those with weights are in tests/testing/torch_modules.h as well.
#include <torch/nn/modules/distance.h>
#include <torch/nn/modules/loss.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace nn = torch::nn;

const auto two = floats({{2, 3}, {2, 3}});
const auto shares = fractions({{2, 3}, {2, 3}});
const auto scores_and_shares = joined({floats({{2, 3}}), fractions({{2, 3}})});
const auto scores_and_classes = joined({floats({{4, 3}}), integers(3, {4})});
const auto scores_and_signs = joined({floats({{2, 3}}), signs({2, 3})});
const auto three_vectors = floats({{2, 3}, {2, 3}, {2, 3}});

/// Adds a loss with each reduction.
template <class Impl, class Options>
void add_each(Catalog& all, const std::string& name, const std::function<Tensors()>& inputs, Options options,
              std::size_t differentiable = Operator::kLeadingFloats) {
  all.module<Impl>(name + ", mean", inputs, options.reduction(torch::kMean)).differentiable = differentiable;
  all.module<Impl>(name + ", sum", inputs, options.reduction(torch::kSum)).differentiable = differentiable;
  all.module<Impl>(name + ", none", inputs, options.reduction(torch::kNone)).differentiable = differentiable;
}

const Registration kLosses([](Catalog& all) {
  add_each<nn::L1LossImpl>(all, "L1Loss", two, nn::L1LossOptions());
  add_each<nn::MSELossImpl>(all, "MSELoss", two, nn::MSELossOptions());
  add_each<nn::SmoothL1LossImpl>(all, "SmoothL1Loss", two, nn::SmoothL1LossOptions().beta(0.5));
  add_each<nn::HuberLossImpl>(all, "HuberLoss", two, nn::HuberLossOptions().delta(0.5));
  add_each<nn::PoissonNLLLossImpl>(all, "PoissonNLLLoss", shares, nn::PoissonNLLLossOptions());
  add_each<nn::KLDivLossImpl>(all, "KLDivLoss", shares, nn::KLDivLossOptions());
  add_each<nn::BCELossImpl>(all, "BCELoss", shares, nn::BCELossOptions());
  add_each<nn::BCEWithLogitsLossImpl>(all, "BCEWithLogitsLoss", scores_and_shares, nn::BCEWithLogitsLossOptions());
  add_each<nn::NLLLossImpl>(all, "NLLLoss", scores_and_classes, nn::NLLLossOptions());
  add_each<nn::CrossEntropyLossImpl>(all, "CrossEntropyLoss", scores_and_classes, nn::CrossEntropyLossOptions());
  add_each<nn::HingeEmbeddingLossImpl>(all, "HingeEmbeddingLoss", scores_and_signs, nn::HingeEmbeddingLossOptions(), 1);
  add_each<nn::SoftMarginLossImpl>(all, "SoftMarginLoss", scores_and_signs, nn::SoftMarginLossOptions(), 1);
  add_each<nn::MultiMarginLossImpl>(all, "MultiMarginLoss", scores_and_classes, nn::MultiMarginLossOptions());
  add_each<nn::MultiLabelMarginLossImpl>(all, "MultiLabelMarginLoss", joined({floats({{2, 3}}), integers(3, {2, 3})}),
                                         nn::MultiLabelMarginLossOptions());
  add_each<nn::MultiLabelSoftMarginLossImpl>(all, "MultiLabelSoftMarginLoss", scores_and_shares,
                                             nn::MultiLabelSoftMarginLossOptions());
  add_each<nn::CosineEmbeddingLossImpl>(all, "CosineEmbeddingLoss", joined({two, signs({2})}),
                                        nn::CosineEmbeddingLossOptions(), 2);
  add_each<nn::MarginRankingLossImpl>(all, "MarginRankingLoss", joined({floats({{3}, {3}}), signs({3})}),
                                      nn::MarginRankingLossOptions().margin(0.3), 2);
  add_each<nn::TripletMarginLossImpl>(all, "TripletMarginLoss", three_vectors,
                                      nn::TripletMarginLossOptions().margin(2));
  add_each<nn::TripletMarginWithDistanceLossImpl>(all, "TripletMarginWithDistanceLoss", three_vectors,
                                                  nn::TripletMarginWithDistanceLossOptions().margin(2));
});

const Registration kCtc([](Catalog& all) {
  const auto forward = [](nn::Module& module, const Tensors& in) {
    return dynamic_cast<nn::CTCLossImpl&>(module).forward(
        in[0].log_softmax(2), in[1] + 1, torch::tensor({5, 4}, torch::kLong), torch::tensor({2, 1}, torch::kLong));
  };
  const auto add = [&](const std::string& name, const nn::CTCLossOptions& options) {
    all.add({.name = name,
             .inputs = joined({floats({{5, 2, 3}}), integers(2, {2, 2})}),
             .make = [=] { return std::make_shared<nn::CTCLossImpl>(options); },
             .forward = forward});
  };
  add("CTCLoss, mean", nn::CTCLossOptions());
  add("CTCLoss, sum", nn::CTCLossOptions().reduction(torch::kSum));
  add("CTCLoss, none", nn::CTCLossOptions().reduction(torch::kNone).zero_infinity(true));
});

const Registration kDistances([](Catalog& all) {
  all.module<nn::CosineSimilarityImpl>("CosineSimilarity", two);
  all.module<nn::PairwiseDistanceImpl>("PairwiseDistance", two);
});

}  // namespace
}  // namespace graft::testing
