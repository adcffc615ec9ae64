#include "tensordict/internal/members.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <string>

#include "tensordict/structure.h"

namespace graft::internal {
namespace {

std::vector<int64_t> without(std::vector<int64_t> sizes, std::optional<int64_t> dim) {
  if (dim) sizes.erase(sizes.begin() + *dim);
  return sizes;
}

/// Lists the parts whose own batch dims differ.
std::string describe_nested(const TensorDict& got, const TensorDict& expected) {
  std::ostringstream lines;
  const auto describe = [&](const std::string& part) {
    if (!got.keys()->is_subtree(part) || !expected.keys()->is_subtree(part))
      return;  // a key that differs, said already
    lines << "\n  part \"" << part << "\": batch size " << at::IntArrayRef(got.batch_size(part)) << ", expected "
          << at::IntArrayRef(expected.batch_size(part));
  };
  for (const auto& [part, sizes] : expected.nested_sizes().parts()) {
    if (got.nested_sizes().at(part) != sizes) describe(part);
  }
  for (const auto& [part, sizes] : got.nested_sizes().parts()) {
    if (!expected.nested_sizes().parts().contains(part) && expected.nested_sizes().at(part) != sizes) describe(part);
  }
  return lines.str();
}

/// Says how a member differs from the first, but for the size of `free_dim`.
std::string describe_member(const TensorDict& member, const TensorDict& first, std::optional<int64_t> free_dim) {
  std::string lines;
  if (member.batch_dims() != first.batch_dims() ||
      without(member.batch_size(), free_dim) != without(first.batch_size(), free_dim)) {
    lines = c10::str("\n  batch size ", at::IntArrayRef(member.batch_size()), ", expected ",
                     at::IntArrayRef(first.batch_size()));
  }
  lines += describe_mismatch(member, first, {.free_dim = free_dim});
  if (!(member.nested_sizes() == first.nested_sizes())) lines += describe_nested(member, first);
  return lines;
}

}  // namespace

void check_members(std::string_view call, const std::vector<TensorDict>& members, std::optional<int64_t> free_dim) {
  std::string problems;
  for (std::size_t i = 1; i < members.size(); ++i) {
    const std::string lines = describe_member(members[i], members.front(), free_dim);
    if (!lines.empty()) problems += c10::str("\nmember ", i, ':', lines);
  }
  TORCH_CHECK_VALUE(problems.empty(), call, ": these members are not like the first:", problems);
}

}  // namespace graft::internal
