#include "functional/tree.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace graft {
namespace {

static_assert(Tree<std::tuple<Tensor, std::vector<TensorDict>>>);
static_assert(!Tree<std::pair<Tensor, int>> && HasTreeParts<std::pair<Tensor, int>>);
static_assert(!HasTreeParts<std::vector<double>>);

TEST(TreeTest, FindsEachPartAndItsPath) {
  std::tuple value(std::vector<Tensor>{at::ones({1}), at::ones({2})}, 3, std::pair(TensorDict(), at::ones({3})));
  std::vector<std::string> paths;
  for (const TreePart& part : collect_parts(value)) paths.push_back(part.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"[0][0]", "[0][1]", "[2][0]", "[2][1]"}));
}

TEST(TreeTest, ReplacesTensorsInPlace) {
  std::array<Tensor, 2> value{at::zeros({1}), at::zeros({2})};
  for (const TreePart& part : collect_parts(value)) replace_tensors(part, [](const Tensor& t) { return t + 1; });
  EXPECT_TRUE(at::equal(value[1], at::ones({2})));
}

TEST(TreeTest, NamesLeavesByPath) {
  TensorDict value({{"a.b", at::ones({1})}});
  visit_tensors(collect_parts(value).front(), [](const Tensor&, const TensorPlace& place) {
    EXPECT_EQ(place.describe("argument 1"), "leaf \"a.b\" of argument 1");
  });
}

}  // namespace
}  // namespace graft
