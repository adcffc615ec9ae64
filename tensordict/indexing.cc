#include "tensordict/indexing.h"

#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <c10/util/Exception.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensordict/internal/batch_dims.h"
#include "tensordict/internal/write_check.h"
#include "tensordict/nested_key.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

using at::indexing::Slice;
using at::indexing::TensorIndex;
using internal::joined;
using internal::map_batch;
using internal::own_sizes;
using internal::wrap_dim;
using internal::WriteProblems;

// --- Indices

bool is_mask(const TensorIndex& index) {
  return index.is_tensor() && (index.tensor().scalar_type() == at::kBool || index.tensor().scalar_type() == at::kByte);
}

/// Returns how many dims the index takes up.
int64_t dims_taken(const TensorIndex& index) {
  if (is_mask(index)) return index.tensor().dim();
  return index.is_integer() || index.is_slice() || index.is_tensor() ? 1 : 0;
}

/// Checks that a mask has the shape of batch dims, from number `first` on.
void check_mask_shape(std::string_view call, const at::Tensor& mask, at::IntArrayRef batch_size, int64_t first = 0) {
  const at::IntArrayRef rest = batch_size.slice(first);
  const bool fits = mask.dim() <= static_cast<int64_t>(rest.size()) && rest.slice(0, mask.dim()).equals(mask.sizes());
  TORCH_CHECK_VALUE(fits, call, ": a mask of shape ", mask.sizes(), " at batch dim ", first, " of the batch size ",
                    batch_size);
}

/// Puts whole slices in place of the ellipsis, so that it ends with the batch dims, and in place of a mask the
/// positions where it is true, so that they are looked for once and not for each leaf.
std::vector<TensorIndex> spell_out(std::string_view call, Indices indices, at::IntArrayRef batch_size) {
  int64_t taken = 0;
  int64_t ellipses = 0;
  for (const TensorIndex& index : indices) {
    taken += dims_taken(index);
    ellipses += index.is_ellipsis();
  }
  const auto batch_dims = static_cast<int64_t>(batch_size.size());
  TORCH_CHECK_INDEX(taken <= batch_dims, call, ": indices for ", taken, " dims, but the tree has ", batch_dims,
                    " batch dims");
  TORCH_CHECK_INDEX(ellipses <= 1, call, ": ", ellipses, " ellipses, expected at most one");
  std::vector<TensorIndex> spelled_out;
  int64_t dim = 0;
  for (const TensorIndex& index : indices) {
    if (index.is_ellipsis()) {
      spelled_out.insert(spelled_out.end(), batch_dims - taken, TensorIndex(Slice()));
      dim += batch_dims - taken;
    } else if (is_mask(index) && index.tensor().dim() > 0) {
      check_mask_shape(call, index.tensor(), batch_size, dim);
      for (at::Tensor& positions : index.tensor().nonzero().unbind(1)) spelled_out.emplace_back(std::move(positions));
    } else {
      spelled_out.push_back(index);
    }
    dim += dims_taken(index);
  }
  if (spelled_out.empty()) spelled_out.emplace_back(at::indexing::Ellipsis);  // LibTorch takes no empty list
  return spelled_out;
}

/// What indices choose.
struct Place {
  std::vector<TensorIndex> indices;
  std::vector<int64_t> batch_size;
};

Place find_place(std::string_view call, const TensorDict& tree, Indices indices) {
  std::vector<TensorIndex> spelled_out = spell_out(call, indices, tree.batch_size());
  at::Tensor sample = internal::batch_sample(tree);
  for (const TensorIndex& index : spelled_out) {
    // A tensor of another device can be indexed from the CPU, not the other way round.
    if (index.is_tensor() && !index.tensor().is_cpu()) sample = sample.to(index.tensor().device());
  }
  std::vector<int64_t> batch_size = sample.index(spelled_out).sizes().vec();
  return {std::move(spelled_out), std::move(batch_size)};
}

// --- Writing

/// Returns the shape of what `place` chooses of a leaf.
std::vector<int64_t> chosen_sizes(const Place& place, const TensorDict& tree, const at::Tensor& leaf) {
  return joined(place.batch_size, own_sizes(leaf, tree.batch_dims()));
}

/// Returns the outermost part around `path` that `tree` does not have; empty if it has them all.
std::string_view first_new_part(const TensorDict& tree, std::string_view path) {
  std::string_view new_part;
  for (std::string_view part = parent_path(path); !part.empty() && !tree.keys()->is_subtree(part);
       part = parent_path(part)) {
    new_part = part;
  }
  return new_part;
}

/// Adds a problem if `path`, which is no leaf of `tree`, cannot become one.
void check_clash(const TensorDict& tree, const std::string& path, WriteProblems& problems) {
  const std::string_view part = first_new_part(tree, path);
  if (tree.is_locked()) {
    problems.add(path) << "not in the tree, which is locked";
  } else if (tree.keys()->is_subtree(path)) {
    problems.add(path) << "a part of the tree, not a leaf";
  } else if (!part.empty() && tree.find(part) != nullptr) {
    problems.add(path) << "below \"" << part << "\", which is a leaf of the tree";
  }
}

/// Returns `tree` with the leaves that only `source` has, filled with zeros.
TensorDict with_missing_leaves(TensorDict tree, const TensorDict& source) {
  if (tree.keys() == source.keys()) return tree;
  std::vector<std::size_t> missing;
  std::vector<at::Tensor> zeros;
  WriteProblems problems;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::string& path = source.keys()->path(i);
    if (tree.find(path) != nullptr) continue;
    check_clash(tree, path, problems);
    const at::Tensor& value = source.values()[i];
    const std::vector<int64_t> sizes = joined(tree.batch_size(), own_sizes(value, source.batch_dims()));
    const std::vector<int64_t> around = joined(tree.batch_size(), tree.nested_sizes().at(path));
    if (!internal::starts_with(sizes, around)) {
      problems.add(path) << "shape " << at::IntArrayRef(sizes) << ", expected to start with "
                         << at::IntArrayRef(around);
    }
    missing.push_back(i);
    zeros.push_back(value.new_zeros(sizes));
  }
  problems.throw_if_any("index_put_");
  if (missing.empty()) return tree;
  const TensorDict added = source.subset(missing).with_values(std::move(zeros), tree.batch_size());
  for (const auto& [path, value] : added.leaves()) {
    if (tree.find(path) != nullptr) continue;  // it came with its part
    const std::string_view part = first_new_part(tree, path);
    if (part.empty()) {
      tree.set(path, value);
    } else {
      tree.set(part, added.subtree(part));
    }
  }
  return tree;
}

// --- Masks

/// Returns a mask or an index with a dim of size 1 for each further dim of `leaf`.
at::Tensor with_dims_of(const at::Tensor& mask, const at::Tensor& leaf) {
  return mask.view(joined(mask.sizes(), std::vector<int64_t>(leaf.dim() - mask.dim(), 1)));
}

void check_mask(std::string_view call, const at::Tensor& mask, const TensorDict& tree) {
  TORCH_CHECK_VALUE(mask.scalar_type() == at::kBool, call, ": a mask of dtype ", mask.dtype(), ", expected bool");
  check_mask_shape(call, mask, tree.batch_size());
}

}  // namespace

TensorDict index(const TensorDict& tree, Indices indices) {
  const Place place = find_place("index", tree, indices);
  return map_batch(tree, place.batch_size, [&](const at::Tensor& leaf) { return leaf.index(place.indices); })
      .unlocked();
}

TensorDict& index_put_(TensorDict& tree, Indices indices, const TensorDict& source) {
  const Place place = find_place("index_put_", tree, indices);
  TORCH_CHECK_VALUE(source.batch_size() == place.batch_size, "index_put_: the source has the batch size ",
                    at::IntArrayRef(source.batch_size()), ", expected ", at::IntArrayRef(place.batch_size),
                    ", which the indices choose of ", at::IntArrayRef(tree.batch_size()), "; the tree is unchanged");
  TensorDict changed = with_missing_leaves(tree, source);
  const bool same_table = changed.keys() == source.keys();
  std::vector<at::Tensor> targets;
  targets.reserve(source.size());
  WriteProblems problems;
  for (std::size_t i = 0; i < source.size(); ++i) {
    const std::string& path = source.keys()->path(i);
    const at::Tensor& value = source.values()[i];
    const at::Tensor& target = targets.emplace_back(same_table ? changed.values()[i] : changed.at(path));
    problems.check_target(path, target, internal::source_of(value));
    problems.check_value(path, value, chosen_sizes(place, tree, target), target);
    if (value.dim() < target.dim() - tree.batch_dims() + source.batch_dims()) {
      problems.add(path) << "shape " << value.sizes() << ", expected one of as many dims as that of the leaf there";
    }
  }
  problems.throw_if_any("index_put_");
  for (std::size_t i = 0; i < targets.size(); ++i) {
    at::Tensor& target = targets[i];
    target.index_put_(place.indices, source.values()[i].to(target.device(), target.scalar_type()));
  }
  tree = std::move(changed);
  return tree;
}

TensorDict& index_put_(TensorDict& tree, Indices indices, const at::Tensor& value) {
  const Place place = find_place("index_put_", tree, indices);
  WriteProblems problems;
  for (const auto& [path, target] : tree.leaves()) {
    problems.check_target(path, target, internal::source_of(value));
    problems.check_value(path, value, chosen_sizes(place, tree, target), target);
  }
  problems.throw_if_any("index_put_");
  for (at::Tensor target : tree.values()) {
    target.index_put_(place.indices, value.to(target.device(), target.scalar_type()));
  }
  return tree;
}

TensorDict& index_put_(TensorDict& tree, Indices indices, const at::Scalar& value) {
  const Place place = find_place("index_put_", tree, indices);
  WriteProblems problems;
  for (const auto& [path, target] : tree.leaves()) {
    problems.check_target(path, target, internal::Source{});
    problems.check_number(path, value, target);
  }
  problems.throw_if_any("index_put_");
  for (at::Tensor target : tree.values()) target.index_put_(place.indices, value);
  return tree;
}

TensorDict narrow(const TensorDict& tree, int64_t dim, int64_t start, int64_t length) {
  dim = wrap_dim("narrow", dim, tree.batch_dims());
  const int64_t size = tree.batch_size()[dim];
  const int64_t first = start < 0 ? start + size : start;
  TORCH_CHECK_INDEX(0 <= first && 0 <= length && first <= size - length, "narrow: no ", length, " elements from ",
                    start, " on in batch dim ", dim, " of size ", size);
  return map_batch(tree, [&](const at::Tensor& leaf) { return leaf.narrow(dim, first, length); });
}

TensorDict index_select(const TensorDict& tree, int64_t dim, const at::Tensor& index) {
  dim = wrap_dim("index_select", dim, tree.batch_dims());
  TORCH_CHECK_VALUE(index.dim() <= 1, "index_select: an index of shape ", index.sizes(), ", expected [n] or []");
  std::vector<int64_t> batch_size = tree.batch_size();
  batch_size[dim] = index.numel();
  return map_batch(tree, std::move(batch_size), [&](const at::Tensor& leaf) { return leaf.index_select(dim, index); })
      .unlocked();
}

TensorDict gather(const TensorDict& tree, int64_t dim, const at::Tensor& index) {
  dim = wrap_dim("gather", dim, tree.batch_dims());
  bool fits = index.dim() == tree.batch_dims();
  for (int64_t i = 0; fits && i < index.dim(); ++i) fits = i == dim || index.size(i) <= tree.batch_size()[i];
  TORCH_CHECK_VALUE(fits, "gather: an index of shape ", index.sizes(), ", expected one no larger than the batch size ",
                    at::IntArrayRef(tree.batch_size()), " except in dim ", dim);
  return map_batch(tree, index.sizes().vec(),
                   [&](const at::Tensor& leaf) {
                     const std::vector<int64_t> shape = joined(index.sizes(), own_sizes(leaf, tree.batch_dims()));
                     return leaf.gather(dim, with_dims_of(index, leaf).expand(shape));
                   })
      .unlocked();
}

TensorDict masked_select(const TensorDict& tree, const at::Tensor& mask) {
  check_mask("masked_select", mask, tree);
  return index(tree, {mask});
}

TensorDict masked_fill(const TensorDict& tree, const at::Tensor& mask, const at::Scalar& value) {
  check_mask("masked_fill", mask, tree);
  return tree.map([&](const at::Tensor& leaf) { return leaf.masked_fill(with_dims_of(mask, leaf), value); });
}

TensorDict where(const at::Tensor& condition, const TensorDict& tree, const TensorDict& other) {
  check_mask("where", condition, tree);
  TORCH_CHECK_VALUE(tree.batch_size() == other.batch_size(), "where: the second tree has the batch size ",
                    at::IntArrayRef(other.batch_size()), ", expected ", at::IntArrayRef(tree.batch_size()));
  const std::string problems = describe_mismatch(other, tree, {.dtypes = false, .devices = false});
  TORCH_CHECK_VALUE(problems.empty(), "where: the second tree is not like the first:", problems);
  const std::vector<at::Tensor> others = aligned_values("where", tree, other);
  std::vector<at::Tensor> values;
  values.reserve(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const at::Tensor& leaf = tree.values()[i];
    values.push_back(at::where(with_dims_of(condition, leaf), leaf, others[i]));
  }
  return tree.with_values(std::move(values)).unlocked();
}

TensorDict where(const at::Tensor& condition, const TensorDict& tree, const at::Scalar& other) {
  check_mask("where", condition, tree);
  return tree.map([&](const at::Tensor& leaf) { return at::where(with_dims_of(condition, leaf), leaf, other); });
}

}  // namespace graft
