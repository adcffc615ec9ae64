// Losses and distances of torch::nn::functional.
#include <torch/nn/functional/distance.h>
#include <torch/nn/functional/loss.h>

#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

namespace F = torch::nn::functional;

const auto two = floats({{2, 3}, {2, 3}});
const auto scores_and_classes = joined({floats({{4, 3}}), integers(3, {4})});
const auto scores_and_signs = joined({floats({{2, 3}}), signs({2, 3})});
const auto three_vectors = floats({{2, 3}, {2, 3}, {2, 3}});

Tensor class_weights() { return torch::tensor({0.5, 1.5, 2.0}, torch::kDouble); }

/// Adds a loss with each reduction. \param with (reduction) -> function
template <class With>
void add_each(Catalog& all, const std::string& name, const std::function<Tensors()>& inputs, With with,
              std::size_t differentiable = Operator::kLeadingFloats) {
  all.function(name + ", mean", inputs, with(torch::kMean)).differentiable = differentiable;
  all.function(name + ", sum", inputs, with(torch::kSum)).differentiable = differentiable;
  all.function(name + ", none", inputs, with(torch::kNone)).differentiable = differentiable;
}

const Registration kRegressions([](Catalog& all) {
  add_each(all, "l1_loss", two, [](auto r) { return [r](auto& in) { return F::l1_loss(in[0], in[1], r); }; });
  add_each(all, "mse_loss", two, [](auto r) { return [r](auto& in) { return F::mse_loss(in[0], in[1], r); }; });
  add_each(all, "smooth_l1_loss", two, [](auto r) {
    return [r](auto& in) { return F::smooth_l1_loss(in[0], in[1], F::SmoothL1LossFuncOptions(r).beta(0.5)); };
  });
  all.function("smooth_l1_loss, beta 0", two,
               [](auto& in) { return F::smooth_l1_loss(in[0], in[1], F::SmoothL1LossFuncOptions().beta(0)); });
  add_each(all, "huber_loss", two, [](auto r) {
    return [r](auto& in) { return F::huber_loss(in[0], in[1], F::HuberLossFuncOptions(r).delta(0.5)); };
  });
  add_each(all, "poisson_nll_loss", fractions({{2, 3}, {2, 3}}), [](auto r) {
    return [r](auto& in) { return F::poisson_nll_loss(in[0], in[1], F::PoissonNLLLossFuncOptions().reduction(r)); };
  });
  all.function("poisson_nll_loss, full, of rates", joined({fractions({{2, 3}}), fractions({{2, 3}})}), [](auto& in) {
    return F::poisson_nll_loss(in[0], in[1] * 5, F::PoissonNLLLossFuncOptions().log_input(false).full(true));
  });
});

const Registration kProbabilities([](Catalog& all) {
  add_each(all, "kl_div", fractions({{2, 3}, {2, 3}}),
           [](auto r) { return [r](auto& in) { return F::kl_div(in[0].log(), in[1], r); }; });
  all.function("kl_div, batchmean, of logarithms", two, [](auto& in) {
    return F::kl_div(in[0], in[1], F::KLDivFuncOptions(torch::kBatchMean).log_target(true));
  });
  add_each(all, "binary_cross_entropy", fractions({{2, 3}, {2, 3}}), [](auto r) {
    return [r](auto& in) {
      return F::binary_cross_entropy(in[0], in[1],
                                     F::BinaryCrossEntropyFuncOptions().reduction(r).weight(class_weights()));
    };
  });
  add_each(all, "binary_cross_entropy_with_logits", joined({floats({{2, 3}}), fractions({{2, 3}})}), [](auto r) {
    return [r](auto& in) {
      return F::binary_cross_entropy_with_logits(in[0], in[1],
                                                 F::BinaryCrossEntropyWithLogitsFuncOptions()
                                                     .reduction(r)
                                                     .weight(class_weights())
                                                     .pos_weight(class_weights()));
    };
  });
  add_each(all, "nll_loss", scores_and_classes, [](auto r) {
    return [r](auto& in) {
      return F::nll_loss(in[0], in[1], F::NLLLossFuncOptions().reduction(r).weight(class_weights()).ignore_index(1));
    };
  });
  all.function("nll_loss, of images", joined({floats({{2, 3, 2, 2}}), integers(3, {2, 2, 2})}),
               [](auto& in) { return F::nll_loss(in[0], in[1]); });
  add_each(all, "cross_entropy", scores_and_classes, [](auto r) {
    return [r](auto& in) {
      return F::cross_entropy(in[0], in[1],
                              F::CrossEntropyFuncOptions().reduction(r).weight(class_weights()).ignore_index(1));
    };
  });
  all.function("cross_entropy, smooth labels", scores_and_classes, [](auto& in) {
    return F::cross_entropy(in[0], in[1], F::CrossEntropyFuncOptions().label_smoothing(0.2).weight(class_weights()));
  });
  all.function("cross_entropy, of images", joined({floats({{2, 3, 2, 2}}), integers(3, {2, 2, 2})}),
               [](auto& in) { return F::cross_entropy(in[0], in[1]); });
  all.function("cross_entropy, of one sample", joined({floats({{3}}), integers(3, {})}),
               [](auto& in) { return F::cross_entropy(in[0], in[1]); });
  all.function("cross_entropy, of probabilities", joined({floats({{2, 3}}), fractions({{2, 3}})}),
               [](auto& in) { return F::cross_entropy(in[0], in[1]); });
  add_each(all, "ctc_loss", joined({floats({{5, 2, 3}}), integers(2, {2, 2})}), [](auto r) {
    return [r](auto& in) {
      return F::ctc_loss(in[0].log_softmax(2), in[1] + 1, torch::tensor({5, 4}, torch::kLong),
                         torch::tensor({2, 1}, torch::kLong), F::CTCLossFuncOptions().reduction(r));
    };
  });
});

const Registration kMargins([](Catalog& all) {
  add_each(
      all, "hinge_embedding_loss", scores_and_signs,
      [](auto r) {
        return [r](auto& in) {
          return F::hinge_embedding_loss(in[0], in[1], F::HingeEmbeddingLossFuncOptions().reduction(r));
        };
      },
      1);
  add_each(
      all, "soft_margin_loss", scores_and_signs,
      [](auto r) { return [r](auto& in) { return F::soft_margin_loss(in[0], in[1], r); }; }, 1);
  add_each(all, "multi_margin_loss", scores_and_classes, [](auto r) {
    return [r](auto& in) {
      return F::multi_margin_loss(in[0], in[1],
                                  F::MultiMarginLossFuncOptions().reduction(r).weight(class_weights()).margin(0.7));
    };
  });
  all.function("multi_margin_loss, squares", scores_and_classes,
               [](auto& in) { return F::multi_margin_loss(in[0], in[1], F::MultiMarginLossFuncOptions().p(2)); });
  add_each(all, "multilabel_margin_loss", joined({floats({{2, 3}}), integers(3, {2, 3})}), [](auto r) {
    return [r](auto& in) {
      // Labels are those before the first -1.
      return F::multilabel_margin_loss(in[0], torch::cat({in[1].narrow(1, 0, 2), in[1].narrow(1, 2, 1) * 0 - 1}, 1), r);
    };
  });
  add_each(all, "multilabel_soft_margin_loss", joined({floats({{2, 3}}), fractions({{2, 3}})}), [](auto r) {
    return [r](auto& in) {
      return F::multilabel_soft_margin_loss(
          in[0], in[1], F::MultilabelSoftMarginLossFuncOptions().reduction(r).weight(class_weights()));
    };
  });
  add_each(
      all, "cosine_embedding_loss", joined({two, signs({2})}),
      [](auto r) {
        return [r](auto& in) {
          return F::cosine_embedding_loss(in[0], in[1], in[2], F::CosineEmbeddingLossFuncOptions().reduction(r));
        };
      },
      2);
  add_each(
      all, "margin_ranking_loss", joined({floats({{3}, {3}}), signs({3})}),
      [](auto r) {
        return [r](auto& in) {
          return F::margin_ranking_loss(in[0], in[1], in[2],
                                        F::MarginRankingLossFuncOptions().reduction(r).margin(0.3));
        };
      },
      2);
  add_each(all, "triplet_margin_loss", three_vectors, [](auto r) {
    return [r](auto& in) {
      return F::triplet_margin_loss(in[0], in[1], in[2], F::TripletMarginLossFuncOptions().reduction(r).margin(2));
    };
  });
  all.function("triplet_margin_loss, with swap", three_vectors, [](auto& in) {
    return F::triplet_margin_loss(in[0], in[1], in[2], F::TripletMarginLossFuncOptions().swap(true).p(3));
  });
  add_each(all, "triplet_margin_with_distance_loss", three_vectors, [](auto r) {
    return [r](auto& in) {
      return F::triplet_margin_with_distance_loss(
          in[0], in[1], in[2], F::TripletMarginWithDistanceLossFuncOptions().reduction(r).margin(2).swap(true));
    };
  });
});

const Registration kDistances([](Catalog& all) {
  all.function("cosine_similarity", two, [](auto& in) { return F::cosine_similarity(in[0], in[1]); });
  all.function("pairwise_distance", two, [](auto& in) { return F::pairwise_distance(in[0], in[1]); });
  all.function("pairwise_distance, of order 3", two, [](auto& in) {
    return F::pairwise_distance(in[0], in[1], F::PairwiseDistanceFuncOptions().p(3).keepdim(true));
  });
  for (const double p : {1., 2., 3.}) {
    all.function("pdist, of order " + std::to_string(static_cast<int>(p)), floats({{4, 3}}),
                 [p](auto& in) { return F::pdist(in[0], p); });
  }
});

}  // namespace
}  // namespace graft::testing
