#include "vmap/in_dims.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::ThrowsWith;
using Dims = std::vector<MappedDim>;

TEST(InDimsTest, AreTheFirstDimOfEveryValueByDefault) {
  EXPECT_EQ(InDims().for_each(3, "in_dims", "arguments"), (Dims{0, 0, 0}));
}

TEST(InDimsTest, RepeatOneDimForEveryValue) {
  const InDims last = -1;
  EXPECT_EQ(last.for_each(2, "in_dims", "arguments"), (Dims{-1, -1}));
  const InDims none = std::nullopt;
  EXPECT_EQ(none.for_each(2, "in_dims", "arguments"), (Dims{std::nullopt, std::nullopt}));
  EXPECT_TRUE(none.for_each(0, "in_dims", "arguments").empty());
}

TEST(InDimsTest, KeepAListInItsOrder) {
  const InDims dims = {std::nullopt, 0, -1};
  EXPECT_EQ(dims.for_each(3, "in_dims", "arguments"), (Dims{std::nullopt, 0, -1}));
  const InDims from_vector(Dims{2, std::nullopt});
  EXPECT_EQ(from_vector.for_each(2, "in_dims", "arguments"), (Dims{2, std::nullopt}));
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
  EXPECT_EQ(dims.for_each(1, "out_dims", "results"), (Dims{0}));
  EXPECT_THAT([&] { dims.for_each(2, "out_dims", "results"); },
              ThrowsWith<c10::ValueError>("out_dims has 1 entries", "2 results"));
}

}  // namespace
}  // namespace graft
