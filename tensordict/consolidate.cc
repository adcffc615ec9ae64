#include "tensordict/consolidate.h"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <sstream>
#include <string>
#include <utility>

#include "tensordict/ties.h"

namespace graft {
namespace {

constexpr int64_t kAlignment = 64;

void check_can_be_copied(const TensorDict& tree) {
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    if (!value.has_storage()) {
      problems << "\n  \"" << path << "\": " << value.toString() << ", expected a tensor with memory of its own";
    } else if (value.device() != tree.values().front().device()) {
      problems << "\n  \"" << path << "\": on " << value.device() << ", expected " << tree.values().front().device();
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "consolidate: these leaves do not go into one buffer:", text);
}

/// Returns a view of part of `buffer` as a tensor like `leaf`.
at::Tensor view_at(const at::Tensor& buffer, int64_t offset, const at::Tensor& leaf) {
  const int64_t bytes = leaf.numel() * static_cast<int64_t>(leaf.element_size());
  return buffer.narrow(0, offset, bytes).view(leaf.scalar_type()).view(leaf.sizes());
}

}  // namespace

Consolidated::Consolidated(const TensorDict& tree) {
  check_can_be_copied(tree);
  const std::vector<std::size_t> ties = tie_positions(tree.values());
  int64_t bytes = 0;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const at::Tensor& leaf = tree.values()[i];
    offsets_.push_back(ties[i] < i ? offsets_[ties[i]] : bytes);
    if (ties[i] < i) continue;
    const int64_t end = bytes + leaf.numel() * static_cast<int64_t>(leaf.element_size());
    bytes = (end + kAlignment - 1) / kAlignment * kAlignment;
  }
  const at::Device device = tree.empty() ? at::Device(at::kCPU) : tree.values().front().device();
  buffer_ = at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
  show_leaves(tree);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    if (ties[i] == i) tree_.values()[i].copy_(tree.values()[i]);
  }
}

Consolidated::Consolidated(const Consolidated& layout, at::Tensor buffer)
    : offsets_(layout.offsets_), buffer_(std::move(buffer)) {
  show_leaves(layout.tree_);
}

Consolidated Consolidated::clone() const { return Consolidated(*this, buffer_.clone()); }

Consolidated Consolidated::to(at::Device device, bool non_blocking) const {
  return Consolidated(*this, buffer_.to(device, buffer_.scalar_type(), non_blocking));
}

Consolidated Consolidated::pin_memory() const { return Consolidated(*this, buffer_.pin_memory()); }

Consolidated Consolidated::with_buffer(const at::Tensor& buffer) const {
  TORCH_CHECK_VALUE(buffer.scalar_type() == at::kByte && buffer.sizes() == buffer_.sizes() && buffer.is_contiguous(),
                    "consolidate: a buffer of ", buffer.dtype(), ' ', buffer.sizes(),
                    (buffer.is_contiguous() ? "" : ", not contiguous"), "; expected contiguous bytes ",
                    buffer_.sizes());
  return Consolidated(*this, buffer);
}

/// Makes the tree from the buffer. `like` has its keys, batch sizes and kinds of leaves.
void Consolidated::show_leaves(const TensorDict& like) {
  const at::NoGradGuard no_grad;
  const std::vector<std::size_t> ties = tie_positions(like.values());
  std::vector<at::Tensor> leaves;
  leaves.reserve(like.size());
  for (std::size_t i = 0; i < like.size(); ++i) {
    const at::Tensor& leaf = like.values()[i];
    leaves.push_back(ties[i] < i ? leaves[ties[i]]
                                 : view_at(buffer_, offsets_[i], leaf).requires_grad_(leaf.requires_grad()));
  }
  tree_ = like.with_values(std::move(leaves)).lock_();
}

}  // namespace graft
