#include "tensordict/shape.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensordict/internal/batch_dims.h"

namespace graft {
namespace {

using internal::joined;
using internal::map_batch;
using internal::own_sizes;
using internal::wrap_dim;
using internal::wrap_dims;

void check_none_negative(std::string_view call, at::IntArrayRef repeats) {
  const bool fits = std::all_of(repeats.begin(), repeats.end(), [](int64_t repeat) { return repeat >= 0; });
  TORCH_CHECK_VALUE(fits, call, ": repeats ", repeats, ", expected none below 0");
}

/// Returns `sizes` with what is left of `sizes_before` in place of a -1.
std::vector<int64_t> inferred(std::string_view call, at::IntArrayRef sizes, at::IntArrayRef sizes_before) {
  const auto misfit = [&] { return c10::str(call, ": sizes ", sizes, " do not fit the batch dims ", sizes_before); };
  const auto gap = std::find(sizes.begin(), sizes.end(), -1);
  int64_t known = 1;
  for (auto size = sizes.begin(); size != sizes.end(); ++size) {
    TORCH_CHECK_VALUE(*size >= 0 || size == gap, misfit(), ": at most one may be -1, the others are sizes");
    if (size != gap) known *= *size;
  }
  const int64_t count = c10::multiply_integers(sizes_before);
  if (gap == sizes.end()) {
    TORCH_CHECK_VALUE(known == count, misfit(), ", which have ", count, " elements");
    return sizes.vec();
  }
  TORCH_CHECK_VALUE(known != 0 && count % known == 0, misfit(), ": no size for -1 gives ", count, " elements");
  std::vector<int64_t> result = sizes.vec();
  result[gap - sizes.begin()] = count / known;
  return result;
}

/// Adds batch dims of size 1 in front, until there are `dims`.
TensorDict atleast(const TensorDict& tree, int64_t dims) {
  return map_batch(tree, [&](at::Tensor value) {
    for (int64_t i = tree.batch_dims(); i < dims; ++i) value = value.unsqueeze(0);
    return value;
  });
}

/// Repeats along the batch dims and those that `repeats` adds in front.
TensorDict repeated(std::string_view call, const TensorDict& tree, at::IntArrayRef repeats) {
  check_none_negative(call, repeats);
  const std::size_t dims = std::max(repeats.size(), tree.batch_size().size());
  std::vector<int64_t> each = repeats.vec();
  each.insert(each.begin(), dims - each.size(), 1);
  std::vector<int64_t> batch_size = tree.batch_size();
  batch_size.insert(batch_size.begin(), dims - batch_size.size(), 1);
  for (std::size_t dim = 0; dim < dims; ++dim) batch_size[dim] *= each[dim];
  return map_batch(tree, std::move(batch_size), [&](const at::Tensor& value) {
    return value.repeat(joined(each, std::vector<int64_t>(value.dim() - tree.batch_dims(), 1)));
  });
}

}  // namespace

TensorDict view(const TensorDict& tree, at::IntArrayRef sizes) {
  std::vector<int64_t> batch_size = inferred("view", sizes, tree.batch_size());
  std::vector<at::Tensor> views;
  views.reserve(tree.size());
  std::string problems;
  for (const auto& [path, value] : tree.leaves()) {
    try {
      views.push_back(value.view(joined(batch_size, own_sizes(value, tree.batch_dims()))));
    } catch (const c10::Error& error) {
      problems += c10::str("\n  \"", path, "\", of shape ", value.sizes(), ": ", error.what_without_backtrace());
    }
  }
  TORCH_CHECK_VALUE(problems.empty(), "view: these leaves cannot be viewed with the batch size ",
                    at::IntArrayRef(batch_size), "; reshape copies them:", problems);
  return tree.with_values(std::move(views), std::move(batch_size));
}

TensorDict reshape(const TensorDict& tree, at::IntArrayRef sizes) {
  const std::vector<int64_t> batch_size = inferred("reshape", sizes, tree.batch_size());
  return map_batch(tree, batch_size, [&](const at::Tensor& value) {
    return value.reshape(joined(batch_size, own_sizes(value, tree.batch_dims())));
  });
}

TensorDict flatten(const TensorDict& tree, int64_t start_dim, int64_t end_dim) {
  if (tree.batch_dims() == 0) return flatten(unsqueeze(tree, 0), start_dim, end_dim);
  start_dim = wrap_dim("flatten", start_dim, tree.batch_dims());
  end_dim = wrap_dim("flatten", end_dim, tree.batch_dims());
  TORCH_CHECK_VALUE(start_dim <= end_dim, "flatten: start_dim ", start_dim, " comes after end_dim ", end_dim);
  const at::IntArrayRef sizes = tree.batch_size();
  std::vector<int64_t> flat = sizes.slice(0, start_dim).vec();
  flat.push_back(c10::multiply_integers(sizes.slice(start_dim, end_dim - start_dim + 1)));
  return reshape(tree, joined(flat, sizes.slice(end_dim + 1)));
}

TensorDict unflatten(const TensorDict& tree, int64_t dim, at::IntArrayRef sizes) {
  dim = wrap_dim("unflatten", dim, tree.batch_dims());
  TORCH_CHECK_VALUE(!sizes.empty(), "unflatten: no sizes, expected at least one");
  const std::vector<int64_t> inner = inferred("unflatten", sizes, tree.batch_size()[dim]);
  return map_batch(tree, [&](const at::Tensor& value) { return value.unflatten(dim, inner); });
}

TensorDict squeeze(const TensorDict& tree) {
  std::vector<int64_t> dims;
  for (int64_t dim = 0; dim < tree.batch_dims(); ++dim) {
    if (tree.batch_size()[dim] == 1) dims.push_back(dim);
  }
  return map_batch(tree, [&](const at::Tensor& value) { return value.squeeze(dims); });
}

TensorDict squeeze(const TensorDict& tree, int64_t dim) {
  dim = wrap_dim("squeeze", dim, tree.batch_dims());
  return map_batch(tree, [&](const at::Tensor& value) { return value.squeeze(dim); });
}

TensorDict unsqueeze(const TensorDict& tree, int64_t dim) {
  dim = wrap_dim("unsqueeze", dim, tree.batch_dims() + 1);
  return map_batch(tree, [&](const at::Tensor& value) { return value.unsqueeze(dim); });
}

TensorDict atleast_1d(const TensorDict& tree) { return atleast(tree, 1); }
TensorDict atleast_2d(const TensorDict& tree) { return atleast(tree, 2); }
TensorDict atleast_3d(const TensorDict& tree) { return atleast(tree, 3); }

TensorDict permute(const TensorDict& tree, at::IntArrayRef dims) {
  const std::vector<int64_t> order = wrap_dims("permute", dims, tree);
  TORCH_CHECK_VALUE(dims.size() == tree.batch_size().size(), "permute: dims ", dims, ", expected all ",
                    tree.batch_dims(), " batch dims");
  return map_batch(tree, [&](const at::Tensor& value) {
    std::vector<int64_t> all = order;
    for (int64_t dim = tree.batch_dims(); dim < value.dim(); ++dim) all.push_back(dim);
    return value.permute(all);
  });
}

TensorDict transpose(const TensorDict& tree, int64_t dim0, int64_t dim1) {
  dim0 = wrap_dim("transpose", dim0, tree.batch_dims());
  dim1 = wrap_dim("transpose", dim1, tree.batch_dims());
  return map_batch(tree, [&](const at::Tensor& value) { return value.transpose(dim0, dim1); });
}

TensorDict swapaxes(const TensorDict& tree, int64_t dim0, int64_t dim1) { return transpose(tree, dim0, dim1); }

TensorDict movedim(const TensorDict& tree, at::IntArrayRef source, at::IntArrayRef destination) {
  TORCH_CHECK_VALUE(source.size() == destination.size(), "movedim: ", source.size(), " dims ", source, " for the ",
                    destination.size(), " places ", destination);
  const std::vector<int64_t> from = wrap_dims("movedim", source, tree);
  const std::vector<int64_t> to = wrap_dims("movedim", destination, tree);
  return map_batch(tree, [&](const at::Tensor& value) { return value.movedim(from, to); });
}

TensorDict expand(const TensorDict& tree, at::IntArrayRef sizes) {
  const at::IntArrayRef before = tree.batch_size();
  const auto added = static_cast<std::ptrdiff_t>(sizes.size()) - static_cast<std::ptrdiff_t>(before.size());
  std::vector<int64_t> batch_size = sizes.vec();
  for (std::ptrdiff_t i = std::max<std::ptrdiff_t>(added, 0); i < static_cast<std::ptrdiff_t>(sizes.size()); ++i) {
    if (sizes[i] == -1) batch_size[i] = before[i - added];
  }
  const bool is_size = std::all_of(batch_size.begin(), batch_size.end(), [](int64_t size) { return size >= 0; });
  TORCH_CHECK_VALUE(is_size && at::is_expandable_to(before, batch_size), "expand: the batch size ", before,
                    " does not expand to ", sizes);
  return map_batch(tree, batch_size, [&](const at::Tensor& value) {
    return value.expand(joined(batch_size, own_sizes(value, tree.batch_dims())));
  });
}

TensorDict expand_as(const TensorDict& tree, const TensorDict& other) { return expand(tree, other.batch_size()); }

TensorDict repeat(const TensorDict& tree, at::IntArrayRef repeats) {
  TORCH_CHECK_VALUE(repeats.size() == tree.batch_size().size(), "repeat: repeats ", repeats, ", expected one for each ",
                    "of the ", tree.batch_dims(), " batch dims");
  return repeated("repeat", tree, repeats);
}

TensorDict tile(const TensorDict& tree, at::IntArrayRef repeats) { return repeated("tile", tree, repeats); }

TensorDict repeat_interleave(const TensorDict& tree, int64_t repeats, std::optional<int64_t> dim) {
  if (!dim) return repeat_interleave(flatten(tree), repeats, 0);
  const int64_t repeated = wrap_dim("repeat_interleave", *dim, tree.batch_dims());
  check_none_negative("repeat_interleave", repeats);
  std::vector<int64_t> batch_size = tree.batch_size();
  batch_size[repeated] *= repeats;
  return map_batch(tree, std::move(batch_size),
                   [&](const at::Tensor& value) { return value.repeat_interleave(repeats, repeated); });
}

TensorDict repeat_interleave(const TensorDict& tree, const at::Tensor& repeats, std::optional<int64_t> dim) {
  if (!dim) return repeat_interleave(flatten(tree), repeats, 0);
  const int64_t repeated = wrap_dim("repeat_interleave", *dim, tree.batch_dims());
  std::vector<int64_t> batch_size = tree.batch_size();
  TORCH_CHECK_VALUE(repeats.sizes() == at::IntArrayRef(batch_size[repeated]), "repeat_interleave: repeats of shape ",
                    repeats.sizes(), ", expected ", at::IntArrayRef(batch_size[repeated]));
  batch_size[repeated] = repeats.sum().item<int64_t>();  // asked once, not for each leaf
  const int64_t size = batch_size[repeated];
  return map_batch(tree, std::move(batch_size),
                   [&](const at::Tensor& value) { return value.repeat_interleave(repeats, repeated, size); });
}

TensorDict pad(const TensorDict& tree, at::IntArrayRef pad_size, const at::Scalar& value) {
  TORCH_CHECK_VALUE(pad_size.size() % 2 == 0 && pad_size.size() <= 2 * tree.batch_size().size(),
                    "pad: ", pad_size.size(), " numbers ", pad_size, ", expected two for each of at most ",
                    tree.batch_dims(), " batch dims");
  std::vector<int64_t> batch_size = tree.batch_size();
  for (std::size_t i = 0; i < pad_size.size(); ++i) batch_size[i / 2] += pad_size[i];
  const bool is_size = std::all_of(batch_size.begin(), batch_size.end(), [](int64_t size) { return size >= 0; });
  TORCH_CHECK_VALUE(is_size, "pad: ", pad_size, " leaves ", at::IntArrayRef(batch_size), " of the batch size ",
                    at::IntArrayRef(tree.batch_size()));
  return map_batch(tree, std::move(batch_size),
                   [&](const at::Tensor& leaf) {
                     std::vector<int64_t> from_last(2 * leaf.dim());  // LibTorch counts from the last dim on
                     for (std::size_t i = 0; i < pad_size.size(); i += 2) {
                       from_last[from_last.size() - i - 2] = pad_size[i];
                       from_last[from_last.size() - i - 1] = pad_size[i + 1];
                     }
                     return at::constant_pad_nd(leaf, from_last, value);
                   })
      .unlocked();
}

TensorDict flip(const TensorDict& tree, at::IntArrayRef dims) {
  const std::vector<int64_t> wrapped = wrap_dims("flip", dims, tree);
  return map_batch(tree, tree.batch_size(), [&](const at::Tensor& value) { return value.flip(wrapped); });
}

TensorDict roll(const TensorDict& tree, at::IntArrayRef shifts, at::IntArrayRef dims) {
  if (dims.empty()) {
    TORCH_CHECK_VALUE(shifts.size() == 1, "roll: shifts ", shifts, ", expected one where no dims are given");
    return reshape(roll(flatten(tree), shifts, 0), tree.batch_size());
  }
  TORCH_CHECK_VALUE(shifts.size() == dims.size(), "roll: ", shifts.size(), " shifts ", shifts, " for the ", dims.size(),
                    " dims ", dims);
  const std::vector<int64_t> wrapped = wrap_dims("roll", dims, tree);
  return map_batch(tree, tree.batch_size(), [&](const at::Tensor& value) { return value.roll(shifts, wrapped); });
}

TensorDict rot90(const TensorDict& tree, int64_t k, at::IntArrayRef dims) {
  const std::vector<int64_t> plane = wrap_dims("rot90", dims, tree);
  TORCH_CHECK_VALUE(plane.size() == 2, "rot90: dims ", dims, ", expected two");
  std::vector<int64_t> batch_size = tree.batch_size();
  if (k % 2 != 0) std::swap(batch_size[plane[0]], batch_size[plane[1]]);
  return map_batch(tree, std::move(batch_size), [&](const at::Tensor& value) { return value.rot90(k, plane); });
}

}  // namespace graft
