#include "tensordict/internal/outline.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace graft::internal {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> text(const TensorDict& tree) {
  std::vector<std::string> lines;
  for (const OutlineLine& line : outline(tree)) {
    lines.push_back(std::string(static_cast<std::size_t>(line.depth), '-') + line.name + (line.leaf ? "" : ":"));
  }
  return lines;
}

TEST(OutlineTest, GathersWhatLiesInAPart) {
  const at::Tensor x = at::zeros({2, 3});
  TensorDict td({{"a.w", x}, {"b", x}, {"a.n.x", x}, {"c.d.e", x}, {"a.n.y", x}, {"f.g", x}}, {2});
  EXPECT_THAT(text(td), ElementsAre("a:", "-w", "-n:", "--x", "--y", "b", "c.d.e", "f.g"));
  td.set_batch_size("f", {2, 3});
  EXPECT_THAT(text(td), ElementsAre("a:", "-w", "-n:", "--x", "--y", "b", "c.d.e", "f:", "-g"));
}

TEST(OutlineTest, SaysWhatLiesAround) {
  const at::Tensor x = at::zeros({});
  const std::vector<OutlineLine> lines = outline(TensorDict({{"p.q.a", x}, {"p.q.b", x}, {"p.c", x}}));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1].path, "p.q");
  EXPECT_EQ(lines[3].path, "p.q.b");
  EXPECT_EQ(lines[3].around, 1u);
  EXPECT_EQ(lines[3].leaf, 1u);
  EXPECT_EQ(lines[4].around, 0u);
  EXPECT_EQ(lines[0].around, std::nullopt);
}

TEST(OutlineTest, TakesAPathOfTenThousandNames) {
  std::string path = "a";
  for (int i = 1; i < 10000; ++i) path += ".a";
  const TensorDict td({{path, at::zeros({})}, {path + "b", at::zeros({})}});
  EXPECT_EQ(outline(td).size(), 3u);
}

}  // namespace
}  // namespace graft::internal
