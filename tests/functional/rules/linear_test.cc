// Linear maps and the products that their gradients are made of: each way to map them equals the loop.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "functional/grad.h"
#include "tests/functional/rules/set_ups.h"
#include "tests/testing/throws_with.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

/// The shapes of the inputs of one sample.
using Shapes = std::vector<std::vector<int64_t>>;

void check(const std::string& name, const Shapes& shapes, const std::function<Tensor(const Tensors&)>& f) {
  check_set_ups({.name = name,
                 .f = f,
                 .make =
                     [=] {
                       Tensors inputs;
                       for (const auto& shape : shapes) inputs.push_back(random(shape));
                       return inputs;
                     },
                 .differentiable = shapes.size()});
}

TEST(LinearTest, EqualsTheLoop) {
  for (const std::vector<int64_t>& input : Shapes{{3}, {1, 3}, {4, 3}, {2, 4, 3}, {0, 3}}) {
    const std::string name = c10::str("input ", at::IntArrayRef(input));
    check(name, {input, {2, 3}, {2}}, [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); });
    check(name, {input, {2, 3}}, [](const Tensors& in) { return at::linear(in[0], in[1]); });
    check(name, {input, {3}}, [](const Tensors& in) { return at::linear(in[0], in[1]); });
    check(name, {input, {1, 3}, {1}}, [](const Tensors& in) { return at::linear(in[0], in[1], in[2]); });
  }
}

TEST(LinearTest, EqualsTheLoopWithTheWeightOfAnotherLayout) {
  check("transposed", {{4, 3}, {3, 2}, {2}}, [](const Tensors& in) { return at::linear(in[0], in[1].t(), in[2]); });
}

using OfThree = Tensor (*)(const Tensor&, const Tensor&, const Tensor&);

/// Calls f on inputs of which those are mapped whose flag is set, by vmap and by a loop.
void check_mapped(OfThree f, const Tensors& in, const std::vector<bool>& flags) {
  std::vector<MappedDim> dims;
  for (const bool flag : flags) dims.push_back(flag ? MappedDim(0) : std::nullopt);
  const auto of = [&](std::size_t k, int64_t i) { return flags[k] ? in[k][i] : in[k][0]; };
  const auto whole = [&](std::size_t k) { return flags[k] ? in[k] : in[k][0]; };
  const Tensor got = vmap(f, {.in_dims = {dims[0], dims[1], dims[2]}})(whole(0), whole(1), whole(2));
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(got[i].allclose(f(of(0, i), of(1, i), of(2, i)), 1e-12, 1e-12)) << flags[0] << flags[1] << flags[2];
  }
}

void check_whatever_is_mapped(OfThree f, const Tensors& in) {
  for (int mapped = 1; mapped < 8; ++mapped) {
    check_mapped(f, in, {(mapped & 1) != 0, (mapped & 2) != 0, (mapped & 4) != 0});
  }
}

TEST(LinearTest, EqualsTheLoopWhateverIsMapped) {
  check_whatever_is_mapped(
      [](const Tensor& x, const Tensor& weight, const Tensor& bias) { return at::linear(x, weight, bias); },
      {random({3, 4, 5}), random({3, 2, 5}), random({3, 2})});
}

TEST(LinearTest, NestsOverMembersAndSamples) {
  const Tensor weights = random({3, 2, 5}), biases = random({3, 2}), x = random({4, 5});
  const auto loss = [](const Tensor& weight, const Tensor& bias, const Tensor& sample) {
    return at::linear(sample, weight, bias).square().sum();
  };
  const auto of_member = [&](const Tensor& weight, const Tensor& bias) {
    return vmap(grad(loss), {.in_dims = {std::nullopt, std::nullopt, 0}})(weight, bias, x);
  };
  const Tensor got = vmap(of_member)(weights, biases);
  for (int64_t member = 0; member < 3; ++member) {
    for (int64_t i = 0; i < 4; ++i) {
      const Tensor weight = weights[member].clone().set_requires_grad(true);
      loss(weight, biases[member], x[i]).backward();
      EXPECT_TRUE(got[member][i].allclose(weight.grad(), 1e-12, 1e-12));
    }
  }
}

TEST(LinearTest, RefusesOtherSizes) {
  const Tensor x = random({3, 4, 5}), weight = random({2, 6}), bias = random({2});
  EXPECT_THAT([&] { vmap([&](const Tensor& sample) { return at::linear(sample, weight, bias); })(x); },
              ThrowsWith<c10::Error>("cannot be multiplied"));
}

TEST(MmTest, EqualsTheLoop) {
  for (const auto& [left, right] : {std::pair<std::vector<int64_t>, std::vector<int64_t>>{{2, 3}, {3, 4}},
                                    {{2, 1}, {1, 4}},
                                    {{1, 3}, {3, 1}},
                                    {{1, 1}, {1, 1}},
                                    {{2, 3}, {3, 8}},
                                    {{2, 0}, {0, 4}}}) {
    check("mm", {left, right}, [](const Tensors& in) { return in[0].mm(in[1]); });
    check("mm of transposed", {left, right}, [](const Tensors& in) { return in[1].t().mm(in[0].t()); });
  }
}

TEST(MmTest, RefusesOtherSizes) {
  const Tensor left = random({3, 2, 1}), right = random({3, 2, 4});
  EXPECT_ANY_THROW(vmap([](const Tensor& a, const Tensor& b) { return a.mm(b); })(left, right));
}

TEST(AddmmTest, EqualsTheLoop) {
  for (const std::vector<int64_t>& added : Shapes{{4}, {1}, {1, 4}, {2, 1}, {2, 4}, {}}) {
    check(c10::str("addmm of ", at::IntArrayRef(added)), {added, {2, 3}, {3, 4}},
          [](const Tensors& in) { return at::addmm(in[0], in[1], in[2], /*beta=*/0.5, /*alpha=*/-2); });
  }
}

TEST(AddmmTest, EqualsTheLoopWhateverIsMapped) {
  const OfThree add_product = [](const Tensor& added, const Tensor& left, const Tensor& right) {
    return at::addmm(added, left, right, /*beta=*/0.5, /*alpha=*/-2);
  };
  const OfThree plain = [](const Tensor& added, const Tensor& left, const Tensor& right) {
    return at::addmm(added, left, right);
  };
  for (const std::vector<int64_t>& added : Shapes{{4}, {1}, {1, 4}, {2, 1}, {2, 4}}) {
    auto mapped = added;
    mapped.insert(mapped.begin(), 3);
    for (const OfThree f : {add_product, plain}) {
      check_whatever_is_mapped(f, {random(mapped), random({3, 2, 3}), random({3, 3, 4})});
    }
  }
}

}  // namespace
}  // namespace graft::testing
