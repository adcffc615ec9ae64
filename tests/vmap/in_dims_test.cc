#include "vmap/in_dims.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using Dims = std::vector<MappedDim>;

Dims each(const MappedDims& dims, std::size_t count) {
  Dims all;
  for (const MappedDims& of_value : dims.for_each(count, "in_dims", "arguments")) all.push_back(*of_value.one());
  return all;
}

TEST(InDimsTest, AreTheFirstDimOfEveryValueByDefault) { EXPECT_EQ(each(InDims(), 3), (Dims{0, 0, 0})); }

TEST(InDimsTest, RepeatOneDimForEveryValue) {
  const InDims last = -1;
  EXPECT_EQ(each(last, 2), (Dims{-1, -1}));
  const InDims none = std::nullopt;
  EXPECT_EQ(each(none, 2), (Dims{std::nullopt, std::nullopt}));
  EXPECT_TRUE(none.for_each(0, "in_dims", "arguments").empty());
}

TEST(InDimsTest, KeepAListInItsOrder) {
  const InDims dims = {std::nullopt, 0, -1};
  EXPECT_EQ(each(dims, 3), (Dims{std::nullopt, 0, -1}));
  const InDims from_vector(std::vector<MappedDims>{2, std::nullopt});
  EXPECT_EQ(each(from_vector, 2), (Dims{2, std::nullopt}));
}

TEST(InDimsTest, RefuseAListOfAnotherLength) {
  const InDims dims = {0, 1};
  for (const std::size_t count : {0, 1, 3}) {
    EXPECT_THAT([&] { dims.for_each(count, "in_dims", "arguments"); },
                ThrowsWith<c10::ValueError>("in_dims has 2 entries", std::to_string(count) + " arguments"));
  }
}

TEST(InDimsTest, DoNotRepeatAListOfOne) {
  const OutDims dims = {0};
  EXPECT_EQ(each(dims, 1), (Dims{0}));
  EXPECT_THAT([&] { dims.for_each(2, "out_dims", "results"); },
              ThrowsWith<c10::ValueError>("out_dims has 1 entries", "2 results"));
}

TEST(InDimsTest, AreFoundByPath) {
  const InDims dims = {{0, by_name({{"a", 1}, {"b.c", std::nullopt}, {"b", 2}})}, 3};
  const auto at = [&](std::string_view path) { return *dims.below(path, "in_dims").one(); };
  EXPECT_EQ(at("[0][0]"), 0);
  EXPECT_EQ(at("[0][1][a]"), 1);
  EXPECT_EQ(at("[0][1].a"), 1);
  EXPECT_EQ(at("[0][1].b.c"), std::nullopt);
  EXPECT_EQ(at("[0][1].b.cd"), 2);
  EXPECT_EQ(at("[1][7].anything"), 3);
  EXPECT_EQ(dims.below("[0]", "in_dims").one(), nullptr);
  EXPECT_THAT([&] { at("[2]"); }, ThrowsWith<c10::ValueError>("a list of 2 dims", "element 2"));
  EXPECT_THAT([&] { at("[0][1].ab"); }, ThrowsWith<c10::ValueError>("in_dims has no dim for .ab"));
}

}  // namespace
}  // namespace graft
