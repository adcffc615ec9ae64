#include "functional/tree.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

struct Batch {
  at::Tensor x, y;
  int size = 0;  // not named below
};
GRAFT_TREE(Batch, x, y)

namespace app {
struct Task {
  Batch train;
  std::optional<at::Tensor> mask;
  std::map<std::string, at::Tensor> extra;
  std::string name;
};
}  // namespace app
GRAFT_TREE(app::Task, train, mask, extra, name)

namespace graft {
namespace {

static_assert(Tree<Batch> && Tree<std::optional<Batch>> && Tree<std::map<int, Tensor>>);
static_assert(!Tree<app::Task> && HasTreeParts<app::Task>);
static_assert(!HasTreeParts<std::map<std::string, int>> && !HasTreeParts<std::optional<int>>);
static_assert(Tree<std::tuple<Tensor, std::vector<TensorDict>>>);
static_assert(!Tree<std::pair<Tensor, int>> && HasTreeParts<std::pair<Tensor, int>>);
static_assert(!HasTreeParts<std::vector<double>>);

TEST(TreeTest, FindsEachPartAndItsPath) {
  std::tuple value(std::vector<Tensor>{at::ones({1}), at::ones({2})}, 3, std::pair(TensorDict(), at::ones({3})));
  std::vector<std::string> paths;
  for (const TreePart& part : collect_parts(value)) paths.push_back(part.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"[0][0]", "[0][1]", "[2][0]", "[2][1]"}));
}

TEST(TreeTest, FindsTheFieldsOfStructs) {
  app::Task task;
  task.train = {at::ones({1}), at::ones({2})};
  task.mask = at::ones({3});
  task.extra["b"] = at::ones({5});
  task.extra["a"] = at::ones({4});
  std::vector<std::string> paths;
  std::vector<int64_t> sizes;
  for (const TreePart& part : collect_parts(task)) {
    paths.push_back(part.path);
    sizes.push_back(std::get<Tensor*>(part.value)->size(0));
  }
  EXPECT_EQ(paths, (std::vector<std::string>{".train.x", ".train.y", ".mask", ".extra[a]", ".extra[b]"}));
  EXPECT_EQ(sizes, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  task.mask.reset();
  EXPECT_EQ(collect_parts(task).size(), 4);
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
