// Operators that draw random numbers, by each way to draw them under vmap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/operators/operator.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

std::vector<Operator> random_operators() {
  std::vector<Operator> all;
  for (const Operator& op : operators()) {
    if (op.is_random) all.push_back(op);
  }
  return all;
}

class RandomnessTest : public ::testing::TestWithParam<Operator> {
 protected:
  /// Maps the operator over four samples that are equal.
  Tensor map_equal_samples(Randomness randomness) const {
    const Operator& op = GetParam();
    torch::manual_seed(0);
    const auto module = op.is_module() ? op.make() : nullptr;
    if (module != nullptr) module->to(torch::kDouble);
    Tensors inputs = op.inputs();
    for (Tensor& input : inputs) input = input.expand(expanded(input)).contiguous();
    const auto call = [&](const Tensors& in) { return module != nullptr ? op.forward(*module, in) : op.function(in); };
    return vmap(call, {.randomness = randomness})(inputs);
  }

 private:
  static std::vector<int64_t> expanded(const Tensor& sample) {
    std::vector<int64_t> sizes = sample.sizes().vec();
    sizes.insert(sizes.begin(), 4);
    return sizes;
  }
};

TEST_P(RandomnessTest, MustBeChosen) {
  EXPECT_THAT([this] { map_equal_samples(Randomness::kError); }, ThrowsWith<std::exception>("randomness"));
}

TEST_P(RandomnessTest, DrawsTheSameForAll) {
  const Tensor y = map_equal_samples(Randomness::kSame);
  EXPECT_TRUE(y.equal(y[0].expand_as(y)));
}

TEST_P(RandomnessTest, DrawsForEachItsOwn) {
  const Tensor y = map_equal_samples(Randomness::kDifferent);
  for (int64_t i = 1; i < y.size(0); ++i) {
    if (!y[i].equal(y[0])) return;
  }
  FAIL() << "four samples drew the same";
}

INSTANTIATE_TEST_SUITE_P(TorchNn, RandomnessTest, ::testing::ValuesIn(random_operators()),
                         test_name<::testing::TestParamInfo<Operator>>);

}  // namespace
}  // namespace graft::testing
