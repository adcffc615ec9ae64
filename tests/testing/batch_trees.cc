#include "tests/testing/batch_trees.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

namespace graft::testing {
namespace {

std::vector<int64_t> joined(at::IntArrayRef front, at::IntArrayRef back) {
  std::vector<int64_t> sizes = front.vec();
  sizes.insert(sizes.end(), back.begin(), back.end());
  return sizes;
}

at::Tensor numbered(at::IntArrayRef batch_size, at::IntArrayRef own, at::ScalarType dtype = at::kFloat) {
  const std::vector<int64_t> sizes = joined(batch_size, own);
  return at::arange(at::zeros(sizes).numel()).view(sizes).to(dtype);
}

/// Applies `function` to what `leaf` holds at each place beyond the batch dims.
at::Tensor by_element(const at::Tensor& leaf, at::IntArrayRef batch_size, const BatchFunction& function) {
  const at::IntArrayRef own = leaf.sizes().slice(batch_size.size());
  const int64_t places = at::zeros(own).numel();
  if (places == 0) return leaf.new_empty(joined(function(leaf.new_zeros(batch_size)).sizes(), own));
  const at::Tensor flat = leaf.reshape(joined(batch_size, places));
  std::vector<at::Tensor> results;
  for (int64_t i = 0; i < places; ++i) results.push_back(function(flat.select(-1, i)));
  return at::stack(results, -1).reshape(joined(results.front().sizes(), own));
}

}  // namespace

std::vector<std::pair<std::string, TensorDict>> trees_of_batch(const std::vector<int64_t>& batch_size) {
  const TensorDict nested({{"a", numbered(batch_size, {})},
                           {"n.x", numbered(batch_size, {2}, at::kDouble)},
                           {"n.y.z", numbered(batch_size, {2, 3}, at::kLong)}},
                          batch_size);
  TensorDict with_part({{"a", numbered(batch_size, {})}}, batch_size);
  const std::vector<int64_t> part_size = joined(batch_size, {2});
  with_part.set("part", TensorDict({{"w", numbered(part_size, {})}, {"q.v", numbered(part_size, {3})}}, part_size));
  const TensorDict without_elements({{"a", numbered(batch_size, {0})}, {"b", numbered(batch_size, {2})}}, batch_size);
  return {{"nested paths", nested},
          {"a part with batch dims", with_part},
          {"a leaf without elements", without_elements},
          {"no leaves", TensorDict(batch_size)}};
}

void expect_elementwise(const TensorDict& got, const TensorDict& tree, const BatchFunction& function) {
  EXPECT_EQ(at::IntArrayRef(got.batch_size()), function(at::zeros(tree.batch_size())).sizes());
  EXPECT_TRUE(got.nested_sizes() == tree.nested_sizes());
  ASSERT_EQ(got.size(), tree.size());
  for (const auto& [path, leaf] : tree.leaves()) {
    SCOPED_TRACE(path);
    const at::Tensor expected = by_element(leaf, tree.batch_size(), function);
    EXPECT_EQ(got[path].sizes(), expected.sizes());
    EXPECT_EQ(got[path].dtype(), expected.dtype());
    EXPECT_TRUE(at::equal(got[path], expected)) << got[path] << "\nand should be\n" << expected;
  }
}

}  // namespace graft::testing
