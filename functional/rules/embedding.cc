// Kernels for embedding_bag, which LibTorch maps by a loop and which has no forward-mode derivative. The rows are
// looked up one by one, and those of a bag are summed or compared. And for max_norm of embeddings, which LibTorch maps
// by a loop too. See [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <limits>
#include <optional>
#include <tuple>

#include "functional/rules/front_key.h"
#include "functional/rules/optional_tensor.h"
#include "functional/rules/wrapped_value.h"

namespace graft {
namespace {

using at::Tensor;
using internal::given;
using internal::OptionalTensor;

enum class Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

/// The items that are looked up, and the bag of each.
struct Bags {
  Tensor indices;  ///< the row of each item
  Tensor bag_of;   ///< the bag of each item
  Tensor counts;   ///< whether an item counts: all but the padding
  Tensor sizes;    ///< how many items of each bag count
  int64_t number;  ///< of bags
};

// --- Arguments

bool is_index(const Tensor& tensor) { return tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt; }

void check_arguments(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode, bool sparse,
                     const OptionalTensor& per_sample_weights) {
  TORCH_CHECK(weight.dim() == 2, "weight has to be a 2D Tensor, but got Tensor of dimension ", weight.dim());
  TORCH_CHECK(indices.dim() == 1, "indices has to be a 1D Tensor, but got Tensor of dimension ", indices.dim());
  TORCH_CHECK(offsets.dim() == 1, "offsets has to be a 1D Tensor, but got Tensor of dimension ", offsets.dim());
  TORCH_CHECK(is_index(indices) && is_index(offsets),
              "embedding_bag: expected indices and offsets of Long or Int, got ", indices.scalar_type(), " and ",
              offsets.scalar_type());
  TORCH_CHECK(mode >= 0 && mode <= 2, "`mode` must be sum, mean, or max.");
  TORCH_CHECK(!sparse || !internal::requires_grad_on_any_level(weight),
              "embedding_bag: a sparse gradient cannot pass through transforms; use sparse=false");
  if (!given(per_sample_weights)) return;
  TORCH_CHECK(mode == 0, "embedding_bag: per_sample_weights only supported with mode='sum'");
  TORCH_CHECK(per_sample_weights->sizes() == indices.sizes(), "embedding_bag: expected per_sample_weights of shape ",
              indices.sizes(), ", got ", per_sample_weights->sizes());
  TORCH_CHECK(per_sample_weights->scalar_type() == weight.scalar_type(),
              "embedding_bag: expected weight and per_sample_weights of one type, got ", weight.scalar_type(), " and ",
              per_sample_weights->scalar_type());
}

/// Returns the bag of each of `items` items: how many offsets are not beyond it, less one.
Tensor bag_of_each_item(const Tensor& offsets, int64_t items) {
  const Tensor starts = at::zeros({items + 1}, offsets.options()).index_add(0, offsets, at::ones_like(offsets));
  return starts.cumsum(0).narrow(0, 0, items) - 1;
}

Bags read_bags(const Tensor& indices, const Tensor& offsets, bool include_last_offset, int64_t padding) {
  TORCH_CHECK(!include_last_offset || offsets.size(0) > 0,
              "include_last_offset: number of offset should be at least 1");
  Bags bags;
  bags.number = offsets.size(0) - (include_last_offset ? 1 : 0);
  bags.indices = indices.to(at::kLong);
  bags.bag_of = bag_of_each_item(offsets.to(at::kLong).narrow(0, 0, bags.number), indices.size(0));
  bags.counts = bags.indices.ne(padding);
  bags.sizes = at::zeros({bags.number}, bags.indices.options()).index_add(0, bags.bag_of, bags.counts.to(at::kLong));
  return bags;
}

// --- The modes

/// The sum of the rows of each bag, each times `factors` where they are given.
Tensor sum(const Tensor& rows, const Bags& bags, const OptionalTensor& factors) {
  Tensor counted = rows.masked_fill(bags.counts.logical_not().unsqueeze(1), 0);
  if (given(factors)) counted = counted * factors->unsqueeze(1);
  return at::zeros({bags.number, rows.size(1)}, rows.options()).index_add(0, bags.bag_of, counted);
}

Tensor mean(const Tensor& rows, const Bags& bags) {
  const Tensor sizes = bags.sizes.clamp_min(1).to(rows.scalar_type());
  return sum(rows, bags, std::nullopt) / sizes.unsqueeze(1);
}

/// Returns the item that holds the largest value of each bag and column, the first of several; the number of items for
/// an empty bag.
Tensor item_of_maximum(const Tensor& rows, const Bags& bags) {
  const int64_t items = rows.size(0), columns = rows.size(1);
  const Tensor values = rows.detach(), bag_of = bags.bag_of.unsqueeze(1).expand({items, columns});
  const Tensor counts = bags.counts.unsqueeze(1);
  const double lowest = -std::numeric_limits<double>::infinity();
  const Tensor counted = values.masked_fill(counts.logical_not(), lowest);
  const Tensor maxima =
      at::full({bags.number, columns}, lowest, values.options()).scatter_reduce(0, bag_of, counted, "amax");
  const Tensor is_maximum = counted.eq(maxima.gather(0, bag_of)).logical_and(counts);
  const Tensor item = at::arange(items, bags.indices.options()).unsqueeze(1);
  const Tensor candidates = at::where(is_maximum, item, items);
  return at::full({bags.number, columns}, items, item.options()).scatter_reduce(0, bag_of, candidates, "amin");
}

/// Returns what `item` names, one row for each item and zeros for the item beyond the last.
Tensor pick(const Tensor& rows, const Tensor& item) {
  return at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())}).gather(0, item);
}

// --- The operators

/// The value, the bag of each item, the size of each bag and, in mode max, the row of each maximum.
using BagResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;

/// \param padding an index that does not count, or -1.
BagResult bag_rule(const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool scale_grad_by_freq,
                   int64_t mode, bool sparse, const OptionalTensor& per_sample_weights, bool include_last_offset,
                   int64_t padding) {
  check_arguments(weight, indices, offsets, mode, sparse, per_sample_weights);
  const Bags bags = read_bags(indices, offsets, include_last_offset, padding);
  const Tensor rows = at::embedding(weight, bags.indices, /*padding_idx=*/-1, scale_grad_by_freq, /*sparse=*/false);
  if (static_cast<Mode>(mode) == Mode::kSum) {
    return {sum(rows, bags, per_sample_weights), bags.bag_of, bags.sizes, bags.sizes};
  }
  if (static_cast<Mode>(mode) == Mode::kMean) return {mean(rows, bags), bags.bag_of, bags.sizes, bags.sizes};
  const Tensor item = item_of_maximum(rows, bags);
  const Tensor row_of_item = bags.indices.unsqueeze(1).expand({rows.size(0), rows.size(1)});
  return {pick(rows, item), bags.bag_of, bags.sizes, pick(row_of_item, item)};
}

BagResult embedding_bag_rule(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                             bool scale_grad_by_freq, int64_t mode, bool sparse,
                             const OptionalTensor& per_sample_weights, bool include_last_offset) {
  return bag_rule(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
                  /*padding=*/-1);
}

BagResult embedding_bag_with_padding_rule(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                                          bool scale_grad_by_freq, int64_t mode, bool sparse,
                                          const OptionalTensor& per_sample_weights, bool include_last_offset,
                                          std::optional<int64_t> padding) {
  const int64_t rows = weight.size(0);
  TORCH_CHECK(!padding || (*padding >= -rows && *padding < rows),
              "padding_idx must be within the number of embeddings, ", -rows, " through ", rows - 1, ", but got ",
              padding.value_or(0));
  const int64_t row = !padding ? -1 : *padding < 0 ? *padding + rows : *padding;
  return bag_rule(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
                  row);
}

/// Shortens the rows that are looked up, in place.
Tensor& embedding_renorm_rule(Tensor& self, const Tensor& indices, double max_norm, double norm_type) {
  const Tensor none = at::zeros({self.size(0)}, self.options().dtype(at::kBool));
  const Tensor is_looked_up = none.scatter(0, indices.flatten().to(at::kLong), true).unsqueeze(1);
  const Tensor norm = at::linalg_vector_norm(self, norm_type, at::IntArrayRef{1}, /*keepdim=*/true);
  const Tensor is_long = is_looked_up.logical_and(norm > max_norm);
  return self.mul_(at::where(is_long, max_norm / (norm + 1e-7), at::ones_like(norm)));
}

/// A weight that is not mapped cannot hold what mapped indices make of it, and the derivative is not that of backward,
/// which takes the short rows as given: both are left to LibTorch, which refuses them.
bool can_shorten_rows(const torch::jit::Stack& stack) {
  return internal::is_mapped(torch::jit::peek(stack, 0, 4).toTensor()) && !internal::forward_mode_is_on();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl(
      "embedding_renorm_",
      torch::CppFunction::makeFromBoxedFunction<internal::run_where<can_shorten_rows, embedding_renorm_rule>>());
  library.impl("embedding_bag", embedding_bag_rule);
  library.impl("embedding_bag.padding_idx", embedding_bag_with_padding_rule);
  library.impl("_embedding_bag", bag_rule);
  library.impl("_embedding_bag_forward_only", bag_rule);
}

}  // namespace graft
