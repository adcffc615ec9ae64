#include "vmap/jacobian.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "functional/internal/transform_level.h"

namespace graft::internal {
namespace {

int64_t numel_of(const Tensors& tensors) {
  int64_t count = 0;
  for (const Tensor& tensor : tensors) count += tensor.numel();
  return count;
}

std::vector<int64_t> joined(at::IntArrayRef left, at::IntArrayRef right) {
  std::vector<int64_t> sizes = left.vec();
  sizes.insert(sizes.end(), right.begin(), right.end());
  return sizes;
}

/// Rows `begin` to `end` of the identity over all elements of `tensors`, as tensors of these shapes.
Tensors basis(const Tensors& tensors, int64_t begin, int64_t end) {
  Tensors rows;
  int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const auto index = tensor.options().dtype(at::kLong).requires_grad(std::nullopt);
    const Tensor is_one =
        at::arange(begin, end, index).unsqueeze(1).eq(at::arange(offset, offset + tensor.numel(), index));
    rows.push_back(is_one.to(tensor.scalar_type()).reshape(joined({end - begin}, tensor.sizes())));
    offset += tensor.numel();
  }
  return rows;
}

/// Returns f for every row of the basis, stacked: [all elements, ...] for each tensor that f returns.
Tensors over_basis(const Tensors& tensors, const JacobianOptions& options,
                   absl::FunctionRef<Tensors(const Tensors&)> f) {
  TORCH_CHECK_VALUE(!options.chunk_size || *options.chunk_size > 0, "jacobian: chunk_size is ",
                    options.chunk_size.value_or(0), ", expected a positive number");
  const int64_t count = numel_of(tensors);
  const int64_t calls_end = std::max<int64_t>(count, 1);  // Without elements, one call says what f returns.
  const int64_t chunk = std::min(options.chunk_size.value_or(calls_end), calls_end);
  const auto mapped = vmap([&](const Tensors& row) { return f(row); }, {.randomness = options.randomness});
  std::vector<Tensors> chunks;
  for (int64_t begin = 0; begin < calls_end; begin += chunk) {
    chunks.push_back(mapped(basis(tensors, begin, std::min(begin + chunk, count))));
  }
  if (chunks.size() == 1) return std::move(chunks.front());
  Tensors all;
  for (std::size_t i = 0; i < chunks.front().size(); ++i) {
    Tensors parts;
    for (const Tensors& part : chunks) parts.push_back(part[i]);
    all.push_back(at::cat(parts));
  }
  return all;
}

}  // namespace

JacobianBlocks blocks_by_rows(const Tensors& outputs, const Tensors& inputs, const JacobianOptions& options,
                              absl::FunctionRef<Tensors(const Tensors& cotangents)> pull_back) {
  const Tensors gradients = over_basis(outputs, options, pull_back);
  JacobianBlocks blocks;
  int64_t offset = 0;
  for (const Tensor& output : outputs) {
    Tensors& row = blocks.emplace_back();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      row.push_back(gradients[i].narrow(0, offset, output.numel()).reshape(joined(output.sizes(), inputs[i].sizes())));
    }
    offset += output.numel();
  }
  return blocks;
}

JacobianBlocks blocks_by_columns(const Tensors& inputs, const JacobianOptions& options,
                                 absl::FunctionRef<Tensors(const Tensors& tangents)> push_forward) {
  // The function may write into a value in place, and so into its tangent: under a vmap outside, the tangent must be
  // mapped where the value is.
  const auto push_mapped = [&](const Tensors& rows) {
    Tensors mapped = rows;
    for (std::size_t i = 0; i < rows.size(); ++i) mapped[i] = rows[i] + at::zeros_like(inputs[i]);
    return push_forward(mapped);
  };
  const Tensors tangents = depth() > 0 ? over_basis(inputs, options, push_mapped)  //
                                       : over_basis(inputs, options, push_forward);
  JacobianBlocks blocks;
  for (const Tensor& of_output : tangents) {
    Tensors& row = blocks.emplace_back();
    int64_t offset = 0;
    for (const Tensor& input : inputs) {
      const Tensor columns = of_output.narrow(0, offset, input.numel()).movedim(0, -1);
      row.push_back(columns.reshape(joined(of_output.sizes().slice(1), input.sizes())));
      offset += input.numel();
    }
  }
  return blocks;
}

void set_unbatched(const std::vector<TreePart>& parts, const Tensors& tensors) {
  auto next = tensors.begin();
  for (const TreePart& part : parts) {
    if (Tensor* const* tensor = std::get_if<Tensor*>(&part.value)) {
      **tensor = *next++;
      continue;
    }
    TensorDict& tree = *std::get<TensorDict*>(part.value);
    const auto end = next + static_cast<std::ptrdiff_t>(tree.size());
    tree = TensorDict(tree.keys(), Tensors(next, end));
    next = end;
  }
}

}  // namespace graft::internal
