#include "tensordict/match_keys.h"

#include <string>

#include "tensordict/like.h"
#include "tensordict/partition.h"

namespace graft {
namespace {

TensorDict leaves_in(const TensorDict& tree, const TensorDict& other) {
  return filter(tree, [&](const std::string& path, const at::Tensor&) { return other.find(path) != nullptr; });
}

TensorDict leaves_not_in(const TensorDict& tree, const TensorDict& other) {
  return filter(tree, [&](const std::string& path, const at::Tensor&) { return other.find(path) == nullptr; });
}

TensorDict filled(const TensorDict& tree, const TensorDict& other, const at::Scalar& value) {
  return merge({tree, new_full(leaves_not_in(other, tree), tree.batch_size(), value)});
}

}  // namespace

std::pair<TensorDict, TensorDict> keep_common(const TensorDict& left, const TensorDict& right) {
  return {leaves_in(left, right), leaves_in(right, left)};
}

std::pair<TensorDict, TensorDict> fill_missing(const TensorDict& left, const TensorDict& right,
                                               const at::Scalar& value) {
  return {filled(left, right, value), filled(right, left, value)};
}

}  // namespace graft
