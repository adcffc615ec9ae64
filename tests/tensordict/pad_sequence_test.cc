#include "tensordict/pad_sequence.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/tensordict_matchers.h"
#include "tests/testing/throws_with.h"

namespace graft {
namespace {

using testing::TensorDictEq;
using testing::ThrowsWith;
using Sizes = std::vector<int64_t>;

TensorDict episode(int64_t length, double value) {
  return TensorDict({{"obs", at::full({length, 3}, value)}, {"next.reward", at::full({length}, 1, at::kLong)}},
                    {length});
}

TEST(PadSequenceTest, PadsToTheLongestAndStacks) {
  const TensorDict got = pad_sequence({episode(2, 5), episode(3, 6), episode(0, 7)});
  EXPECT_EQ(got.batch_size(), (Sizes{3, 3}));
  EXPECT_TRUE(at::equal(got["next.reward"], at::tensor({1, 1, 0, 1, 1, 1, 0, 0, 0}, at::kLong).view({3, 3})));
  const at::Tensor expected = at::pad_sequence({at::full({2, 3}, 5.0), at::full({3, 3}, 6.0), at::zeros({0, 3})},
                                               /*batch_first=*/true);
  EXPECT_TRUE(at::equal(got["obs"], expected));
}

TEST(PadSequenceTest, PadsWithAnotherValueOnTheLeft) {
  const TensorDict got = pad_sequence({episode(1, 5), episode(2, 6)},
                                      {.padding_value = -1, .padding_side = PaddingSide::kLeft, .mask = "mask"});
  EXPECT_TRUE(at::equal(got["next.reward"], at::tensor({-1, 1, 1, 1}, at::kLong).view({2, 2})));
  EXPECT_TRUE(at::equal(got["mask"], at::tensor({0, 1, 1, 1}).view({2, 2}).to(at::kBool)));
}

TEST(PadSequenceTest, TheMaskSaysWhatIsNoPadding) {
  const TensorDict got = pad_sequence({episode(1, 1), episode(3, 1)}, {.mask = "info.mask"});
  EXPECT_TRUE(at::equal(got["info.mask"], at::tensor({1, 0, 0, 1, 1, 1}).view({2, 3}).to(at::kBool)));
  EXPECT_TRUE(at::equal(got["info.mask"], got["next.reward"] == 1));
}

TEST(PadSequenceTest, PadsAnotherDimAndKeepsPartsWithBatchDims) {
  const auto tree = [](int64_t length) {
    TensorDict result({{"a", at::ones({2, length})}}, {2, length});
    result.set("part", TensorDict({{"b", at::ones({2, length, 4})}}, {2, length, 4}));
    return result;
  };
  const TensorDict got = pad_sequence({tree(3), tree(1)}, {.pad_dim = -1, .mask = "mask"});
  EXPECT_EQ(got.batch_size(), (Sizes{2, 2, 3}));
  EXPECT_EQ(got.batch_size("part"), (Sizes{2, 2, 3, 4}));
  EXPECT_TRUE(at::equal(got["a"][1], at::tensor({1.0f, 0.0f, 0.0f}).expand({2, 3})));
  EXPECT_TRUE(at::equal(got["mask"], got["a"] == 1));
}

TEST(PadSequenceTest, TreesOfOneLengthAreStacked) {
  TensorDict locked = episode(2, 1);
  locked.lock_();
  const TensorDict got = pad_sequence({locked, locked});
  EXPECT_FALSE(got.is_locked());
  EXPECT_TRUE(at::equal(got["obs"], at::ones({2, 2, 3})));
  EXPECT_EQ(pad_sequence({TensorDict(Sizes{2}), TensorDict(Sizes{5})}).batch_size(), (Sizes{2, 5}));
}

TEST(PadSequenceTest, GradientsFlowPastThePadding) {
  TensorDict shorter({{"x", at::zeros({1}).requires_grad_()}}, {1});
  pad_sequence({shorter, TensorDict({{"x", at::zeros({3})}}, {3})})["x"].sum().backward();
  EXPECT_TRUE(at::equal(shorter["x"].grad(), at::ones({1})));
}

TEST(PadSequenceTest, SaysWhatDoesNotFit) {
  using E = c10::ValueError;
  EXPECT_THAT([] { pad_sequence({}); }, ThrowsWith<E>("pad_sequence: no trees"));
  const TensorDict other({{"obs", at::zeros({1, 4})}, {"extra", at::zeros({1})}}, {1});
  EXPECT_THAT(([&] {
                pad_sequence({episode(2, 1), other});
              }),
              ThrowsWith<E>("pad_sequence", "member 1", "\"obs\": shape [1, 4]", "\"next.reward\": missing",
                            "\"extra\": unexpected"));
  EXPECT_THAT([] { pad_sequence({episode(2, 1)}, {.mask = "next"}); }, ThrowsWith<E>("\"next\" already"));
  EXPECT_THAT([] { pad_sequence({episode(2, 1)}, {.pad_dim = 1}); },
              ThrowsWith<c10::IndexError>("pad_sequence(dim=1)", "-1 <= dim < 1"));
  EXPECT_THAT(
      [] {
        pad_sequence({TensorDict({{"a", at::zeros({2})}})});
      },
      ThrowsWith<c10::IndexError>("no batch dims"));
}

}  // namespace
}  // namespace graft
