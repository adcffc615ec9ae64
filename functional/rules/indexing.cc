// Kernels for operators that pick, place and mask elements, which LibTorch maps by a loop over the samples. See NOTE:
// [Kernels on the front key] in losses.cc.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include <algorithm>
#include <string>
#include <vector>

#include "functional/rules/front_key.h"

namespace graft {
namespace {

using at::Tensor;

// --- By a mask

Tensor masked_fill_rule(const Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "masked_fill: expected a value without dims, got one of shape ", value.sizes());
  return at::where(mask, value.to(self.scalar_type()), self);
}

Tensor& masked_fill_in_place_rule(Tensor& self, const Tensor& mask, const Tensor& value) {
  return self.copy_(masked_fill_rule(self, mask, value));
}

Tensor masked_scatter_rule(const Tensor& self, const Tensor& mask, const Tensor& source) {
  TORCH_CHECK(self.scalar_type() == source.scalar_type(), "masked_scatter: expected self and source of one type, got ",
              self.scalar_type(), " and ", source.scalar_type());
  const std::vector<Tensor> both = at::broadcast_tensors({self, mask});
  if (both[0].numel() == 0) return both[0].clone();
  const Tensor next = both[1].reshape(-1).cumsum(0) - 1;  // the number of the source element that is next
  const Tensor placed = source.reshape(-1).gather(0, next.clamp_min(0)).reshape(both[0].sizes());
  return at::where(both[1], placed, both[0]);
}

Tensor& masked_scatter_in_place_rule(Tensor& self, const Tensor& mask, const Tensor& source) {
  return self.copy_(masked_scatter_rule(self, mask, source));
}

// --- By positions in the flattened tensor

Tensor not_negative(const Tensor& index, int64_t size) { return at::where(index < 0, index + size, index).reshape(-1); }

Tensor take_rule(const Tensor& self, const Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "take: expected an index of type Long, got ", index.scalar_type());
  return self.reshape(-1).gather(0, not_negative(index, self.numel())).reshape(index.sizes());
}

Tensor put_rule(const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  TORCH_CHECK(index.scalar_type() == at::kLong, "put: expected an index of type Long, got ", index.scalar_type());
  TORCH_CHECK(index.numel() == source.numel(), "put: expected one index for each element of source, got shapes ",
              index.sizes(), " and ", source.sizes());
  const Tensor flat = self.reshape(-1), to = not_negative(index, self.numel()), from = source.reshape(-1);
  return (accumulate ? flat.scatter_add(0, to, from) : flat.scatter(0, to, from)).reshape(self.sizes());
}

Tensor& put_in_place_rule(Tensor& self, const Tensor& index, const Tensor& source, bool accumulate) {
  return self.copy_(put_rule(self, index, source, accumulate));
}

// --- By positions in a dim

Tensor& scatter_value_in_place_rule(Tensor& self, int64_t dim, const Tensor& index, const at::Scalar& value) {
  return self.copy_(self.scatter(dim, index, value));
}

/// Returns `tensor` with as many elements in all dims but the first as `like` has, new ones with `value`.
Tensor widened(const Tensor& tensor, const Tensor& like, const at::Scalar& value) {
  std::vector<int64_t> more;  // from the last dim, before and after
  for (int64_t dim = tensor.dim() - 1; dim > 0; --dim) {
    more.insert(more.end(), {0, like.size(dim) - tensor.size(dim)});
  }
  return at::constant_pad_nd(tensor, more, value);
}

/// Multiplies the elements of `source`, [n, ...], into `self`, [m, ...], at the places `index`, [n, ...], of dim 0.
/// LibTorch's forward-mode derivative of a scattered product is silently wrong, that of a product is right.
Tensor scattered_product(const Tensor& self, const Tensor& index, const Tensor& source, bool include_self) {
  std::vector<int64_t> shape(self.dim() + 1, 1);
  shape[0] = self.size(0);
  const Tensor places = at::arange(self.size(0), index.options()).reshape(shape);
  const Tensor goes = places == widened(index, self, -1).unsqueeze(0);  // [m, n, ...]
  const Tensor factors = widened(source, self, 1).unsqueeze(0);
  const Tensor product = at::where(goes, factors, at::ones({}, source.options())).prod(1);
  return product * (include_self ? self : self.masked_fill(goes.any(1), 1));
}

Tensor scatter_product_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                            c10::string_view reduce, bool include_self) {
  if (self.dim() == 0) {
    return scatter_product_rule(self.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self)
        .reshape({});
  }
  Tensor used = source;
  for (int64_t i = 0; i < index.dim(); ++i) used = used.narrow(i, 0, index.size(i));
  return scattered_product(self.movedim(dim, 0), index.movedim(dim, 0), used.movedim(dim, 0), include_self)
      .movedim(0, dim);
}

bool is_product_under_forward_mode(const torch::jit::Stack& stack) {
  return torch::jit::peek(stack, 4, 6).toStringView() == "prod" && internal::forward_mode_is_on();
}

/// index_reduce is scatter_reduce with one index for a whole slice.
Tensor index_reduce_rule(const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                         c10::string_view reduce, bool include_self) {
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_reduce: expected an index of one dim, got one of shape ", index.sizes());
  TORCH_CHECK(self.dim() == source.dim(), "index_reduce: expected self and source with as many dims, got shapes ",
              self.sizes(), " and ", source.sizes());
  if (self.dim() == 0) {
    return self.reshape(1).scatter_reduce(0, index.reshape(1), source.reshape(1), reduce, include_self).reshape({});
  }
  std::vector<int64_t> shape(source.dim(), 1);
  shape[at::maybe_wrap_dim(dim, source.dim())] = -1;
  const Tensor of_elements = index.reshape(-1).reshape(shape).expand(source.sizes());
  return self.scatter_reduce(dim, of_elements, source, reduce, include_self);
}

/// The derivative reads what was there before.
Tensor& index_reduce_in_place_rule(Tensor& self, int64_t dim, const Tensor& index, const Tensor& source,
                                   c10::string_view reduce, bool include_self) {
  return self.copy_(index_reduce_rule(self.clone(), dim, index, source, reduce, include_self));
}

/// Adds each window's gradient to where the window was taken from.
Tensor unfold_backward_rule(const Tensor& gradient, at::IntArrayRef input_sizes, int64_t dim, int64_t size,
                            int64_t step) {
  if (input_sizes.empty()) return gradient.sum();
  const int64_t at_dim = at::maybe_wrap_dim(dim, static_cast<int64_t>(input_sizes.size()));
  const auto integers = gradient.options().dtype(at::kLong);
  const Tensor begin = at::arange(gradient.size(at_dim), integers) * step;
  const Tensor from = (begin.unsqueeze(1) + at::arange(size, integers)).reshape(-1);
  const Tensor elements = gradient.movedim(-1, at_dim + 1).flatten(at_dim, at_dim + 1);
  return gradient.new_zeros(input_sizes).index_add(at_dim, from, elements);
}

// --- By being among others

/// Looks each element up in the others in order.
Tensor isin_rule(const Tensor& elements, const Tensor& others, bool /*assume_unique*/, bool invert) {
  const Tensor flat = others.reshape(-1);
  if (flat.numel() == 0) return at::full_like(elements, invert, elements.options().dtype(at::kBool));
  const at::ScalarType type = at::result_type(elements, others);
  TORCH_CHECK(type != at::kBool, "isin: does not support type Bool");
  const Tensor sought = elements.to(type).reshape(-1), sorted = std::get<0>(flat.to(type).sort());
  const Tensor place = at::searchsorted(sorted, sought).clamp_max(flat.numel() - 1);
  const Tensor found = (sorted.gather(0, place) == sought).reshape(elements.sizes());
  return invert ? found.logical_not() : found;
}

// --- By the diagonal

Tensor& tril_in_place_rule(Tensor& self, int64_t diagonal) { return self.copy_(self.tril(diagonal)); }

Tensor& triu_in_place_rule(Tensor& self, int64_t diagonal) { return self.copy_(self.triu(diagonal)); }

/// Returns a mask of the main diagonal of a tensor of shape `sizes`. \param wrap begin anew below a tall matrix
Tensor diagonal_mask(at::IntArrayRef sizes, bool wrap, const at::TensorOptions& options) {
  int64_t step = 0, elements = 1;
  for (const int64_t size : sizes) {
    step = step * size + 1;
    elements *= size;
  }
  const int64_t on_diagonal = *std::min_element(sizes.begin(), sizes.end());
  const Tensor numbers = at::arange(elements, options.dtype(at::kLong));
  Tensor mask = numbers.remainder(step) == 0;
  if (!wrap) mask = mask.logical_and(numbers < on_diagonal * step);
  return mask.reshape(sizes);
}

Tensor& fill_diagonal_in_place_rule(Tensor& self, const at::Scalar& value, bool wrap) {
  const auto sizes = self.sizes();
  TORCH_CHECK(sizes.size() >= 2, "fill_diagonal_: expected a tensor of at least two dims, got shape ", sizes);
  TORCH_CHECK(sizes.size() == 2 || std::equal(sizes.begin() + 1, sizes.end(), sizes.begin()),
              "fill_diagonal_: expected all dims of one size where there are more than two, got shape ", sizes);
  return self.masked_fill_(diagonal_mask(sizes, wrap, self.options()), value);
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, FuncTorchDynamicLayerFrontMode, library) {
  library.impl("masked_fill.Tensor", masked_fill_rule);
  library.impl("masked_fill_.Tensor", masked_fill_in_place_rule);
  library.impl("masked_scatter", masked_scatter_rule);
  library.impl("masked_scatter_", masked_scatter_in_place_rule);
  library.impl("take", take_rule);
  library.impl("put", put_rule);
  library.impl("put_", put_in_place_rule);
  library.impl("scatter_.value", scatter_value_in_place_rule);
  library.impl("index_reduce", index_reduce_rule);
  library.impl("index_reduce_", index_reduce_in_place_rule);
  library.impl("scatter_reduce.two", torch::CppFunction::makeFromBoxedFunction<
                                         internal::run_where<is_product_under_forward_mode, scatter_product_rule>>());
  library.impl("unfold_backward", unfold_backward_rule);
  library.impl("isin.Tensor_Tensor", isin_rule);
  library.impl("tril_", tril_in_place_rule);
  library.impl("triu_", triu_in_place_rule);
  library.impl("fill_diagonal_", fill_diagonal_in_place_rule);
}

}  // namespace graft
