#include "tensordict/lazy_stack.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <sstream>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "tensordict/internal/write_check.h"
#include "tensordict/join.h"
#include "tensordict/partition.h"

namespace graft {
namespace {

/// Checks that every member has something at `path`, a leaf or, if `parts`, a part.
void check_all_have(const char* call, const std::vector<TensorDict>& members, std::string_view path, bool parts) {
  std::ostringstream lines;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (!(parts ? members[i].contains(path) : members[i].find(path) != nullptr)) lines << "\n  member " << i;
  }
  const std::string text = lines.str();
  TORCH_CHECK_INDEX(text.empty(), call, ": these members have nothing at \"", path, "\":", text);
}

void check_like_first(const char* call, std::string_view path, const std::vector<at::Tensor>& leaves) {
  const at::Tensor& first = leaves.front();
  std::ostringstream lines;
  for (std::size_t i = 1; i < leaves.size(); ++i) {
    const at::Tensor& leaf = leaves[i];
    if (leaf.sizes() == first.sizes() && leaf.dtype() == first.dtype() && leaf.device() == first.device()) continue;
    lines << "\n  member " << i << ": " << leaf.dtype() << ' ' << leaf.sizes() << " on " << leaf.device();
  }
  const std::string text = lines.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": the leaves \"", path, "\" do not stack, expected ", first.dtype(), ' ',
                    first.sizes(), " on ", first.device(), " as in member 0:", text);
}

}  // namespace

LazyStack::LazyStack(std::vector<TensorDict> members, int64_t dim) : members_(std::move(members)), dim_(dim) {
  TORCH_CHECK_VALUE(!members_.empty(), "LazyStack: no trees, expected at least one");
  member_batch_size_ = members_.front().batch_size();
  const int64_t places = members_.front().batch_dims() + 1;
  TORCH_CHECK_INDEX(-places <= dim && dim < places, "LazyStack(dim=", dim, "): expected ", -places, " <= dim < ",
                    places);
  if (dim_ < 0) dim_ += places;
  for (const TensorDict& member : members_) check_batch_size(member);
}

TensorDict& LazyStack::operator[](std::size_t position) {
  return const_cast<TensorDict&>(std::as_const(*this)[position]);
}

const TensorDict& LazyStack::operator[](std::size_t position) const {
  TORCH_CHECK_INDEX(position < size(), "LazyStack: no member ", position, ", there are ", size());
  return members_[position];
}

void LazyStack::append(TensorDict member) { insert(size(), std::move(member)); }

void LazyStack::insert(std::size_t position, TensorDict member) {
  TORCH_CHECK_INDEX(position <= size(), "LazyStack::insert: position ", position, ", there are ", size(), " members");
  check_batch_size(member);
  members_.insert(members_.begin() + static_cast<std::ptrdiff_t>(position), std::move(member));
}

std::vector<int64_t> LazyStack::batch_size() const {
  std::vector<int64_t> sizes = member_batch_size_;
  sizes.insert(sizes.begin() + dim_, static_cast<int64_t>(size()));
  return sizes;
}

std::vector<std::string> LazyStack::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, leaf] : members_.front().leaves()) {
    if (is_everywhere(path)) paths.push_back(path);
  }
  return paths;
}

std::vector<std::string> LazyStack::partial_paths() const {
  std::vector<std::string> paths;
  absl::flat_hash_set<std::string> seen;
  for (const TensorDict& member : members_) {
    for (const auto& [path, leaf] : member.leaves()) {
      if (!is_everywhere(path) && seen.insert(path).second) paths.push_back(path);
    }
  }
  return paths;
}

std::vector<std::optional<int64_t>> LazyStack::shape(std::string_view path) const {
  const std::vector<at::Tensor> leaves = each(path);
  const at::IntArrayRef first = leaves.front().sizes();
  std::vector<std::optional<int64_t>> shape(first.begin(), first.end());
  for (const at::Tensor& leaf : leaves) {
    TORCH_CHECK_VALUE(leaf.sizes().size() == first.size(), "LazyStack: the leaves \"", path, "\" have the shapes ",
                      first, " and ", leaf.sizes(), ", expected as many dims");
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (leaf.sizes()[i] != first[i]) shape[i] = std::nullopt;
    }
  }
  shape.insert(shape.begin() + dim_, static_cast<int64_t>(size()));
  return shape;
}

at::Tensor LazyStack::at(std::string_view path) const {
  const std::vector<at::Tensor> leaves = each(path);
  check_like_first("LazyStack", path, leaves);
  return at::stack(leaves, dim_);
}

std::vector<at::Tensor> LazyStack::each(std::string_view path) const {
  check_all_have("LazyStack", members_, path, /*parts=*/false);
  std::vector<at::Tensor> leaves;
  leaves.reserve(size());
  for (const TensorDict& member : members_) leaves.push_back(member.at(path));
  return leaves;
}

TensorDict LazyStack::stack() const {
  const std::vector<std::string> common = paths();
  std::vector<TensorDict> parts;
  parts.reserve(size());
  for (const TensorDict& member : members_) {
    parts.push_back(common.size() == member.size() ? member : select(member, common));
  }
  return graft::stack(parts, dim_);
}

void LazyStack::set(std::string_view path, const at::Tensor& value) {
  const std::vector<int64_t> sizes = batch_size();
  const at::IntArrayRef expected = sizes;
  TORCH_CHECK_VALUE(value.defined() && value.dim() >= static_cast<int64_t>(sizes.size()) &&
                        value.sizes().slice(0, sizes.size()) == expected,
                    "LazyStack::set: a value for \"", path, "\" ",
                    value.defined() ? c10::str("of shape ", value.sizes()) : std::string("that is undefined"),
                    ", expected one whose shape starts with ", expected);
  const std::vector<at::Tensor> parts = value.unbind(dim_);
  std::vector<TensorDict> changed = members_;
  for (std::size_t i = 0; i < size(); ++i) changed[i].set(path, parts[i]);
  members_ = std::move(changed);
}

void LazyStack::set_(std::string_view path, const at::Tensor& value) const {
  const std::vector<at::Tensor> leaves = each(path);
  check_like_first("LazyStack::set_", path, leaves);
  std::vector<int64_t> sizes = leaves.front().sizes().vec();
  sizes.insert(sizes.begin() + dim_, static_cast<int64_t>(size()));
  TORCH_CHECK_VALUE(value.defined() && at::is_expandable_to(value.sizes(), sizes), "LazyStack::set_: a value for \"",
                    path, "\" that does not broadcast to ", at::IntArrayRef(sizes));
  const std::vector<at::Tensor> parts = value.expand(sizes).unbind(dim_);
  KeyTable names;
  for (std::size_t i = 0; i < size(); ++i) names.insert(c10::str("member ", i, '.', path));
  internal::write_values("LazyStack::set_", names, leaves, parts);
}

void LazyStack::erase(std::string_view path) {
  check_all_have("LazyStack::erase", members_, path, /*parts=*/true);
  std::vector<TensorDict> changed = members_;
  for (TensorDict& member : changed) member.erase(path);
  members_ = std::move(changed);
}

void LazyStack::check_batch_size(const TensorDict& member) const {
  TORCH_CHECK_VALUE(member.batch_size() == member_batch_size_, "LazyStack: a member of batch size ",
                    at::IntArrayRef(member.batch_size()), ", expected ", at::IntArrayRef(member_batch_size_));
}

bool LazyStack::is_everywhere(std::string_view path) const {
  for (const TensorDict& member : members_) {
    if (!member.find(path)) return false;
  }
  return true;
}

}  // namespace graft
