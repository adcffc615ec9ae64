// The set-ups find what is right, what is wrong and what is a loop.
#include "tests/functional/rules/set_ups.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace graft::testing {
namespace {

TEST(SetUpsTest, FindPlainOperatorsRight) {
  check_set_ups({.name = "product",
                 .f = [](const Tensors& in) { return (in[0].sin() * in[1]).sum(0) + in[2]; },
                 .make =
                     [] {
                       return Tensors{random({3, 2}), random({3, 2}), random({2})};
                     },
                 .differentiable = 2});
}

TEST(SetUpsTest, NameOperatorsThatAreMappedByALoop) {
  const Outcomes outcomes = run_set_ups({.name = "special_log_ndtr",
                                         .f = [](const Tensors& in) { return at::special_log_ndtr(in[0]); },
                                         .make = [] { return Tensors{random({5})}; },
                                         .differentiable = 0});
  EXPECT_EQ(outcomes, (Outcomes{{"b", "loop: aten::special_log_ndtr"}}));
}

TEST(SetUpsTest, FindWhatIsWrong) {
  // Adds 1 under transforms alone, because a batched tensor has no storage.
  const auto f = [](const Tensors& in) { return in[0].sin() + (in[0].has_storage() ? 0 : 1); };
  const Outcomes outcomes = run_set_ups({.name = "wrong", .f = f, .make = [] { return Tensors{random({5})}; }}, {"b"});
  EXPECT_TRUE(outcomes.at("b").starts_with("wrong by")) << outcomes.at("b");
}

TEST(SetUpsTest, TellWhatThrows) {
  const auto f = [](const Tensors& in) { return in[0] * in[0].sum().item<double>(); };
  const Outcomes outcomes = run_set_ups({.name = "item", .f = f, .make = [] { return Tensors{random({5})}; }}, {"b"});
  EXPECT_TRUE(outcomes.at("b").starts_with("throws:")) << outcomes.at("b");
}

}  // namespace
}  // namespace graft::testing
