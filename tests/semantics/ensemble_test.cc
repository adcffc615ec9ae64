// E: ensembles.
#include "vmap/ensemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

#include "tests/semantics/table.h"
#include "tests/testing/throws_with.h"

namespace graft::testing {

using enum Verdict;
using torch::nn::BatchNorm1d;
using torch::nn::Dropout;
using torch::nn::Linear;
using torch::nn::Sequential;

namespace {

Ensemble<Linear> make_ensemble(int64_t members) {
  return Ensemble<Linear>(members, [] { return Linear(3, 2); });
}

void each_member_has_initial_values_of_its_own() {
  const auto ensemble = make_ensemble(3);
  const Tensor weight = ensemble.state().params.at("weight");
  EXPECT_EQ(weight.sizes(), torch::IntArrayRef({3, 2, 3}));
  EXPECT_FALSE(weight[0].equal(weight[1]) || weight[1].equal(weight[2]) || weight[0].equal(weight[2]));
  EXPECT_THAT([] { make_ensemble(0); }, ThrowsWith<c10::ValueError>("Ensemble", "at least one module"));
}

void outputs_are_the_stack_of_the_members() {
  std::vector<Linear> nets;
  for (int i = 0; i < 4; ++i) nets.emplace_back(3, 2);
  const Ensemble ensemble(nets);
  const Tensor shared = torch::randn({5, 3});
  const Tensor own = torch::randn({4, 5, 3});
  std::vector<Tensor> on_shared, on_own;
  for (int i = 0; i < 4; ++i) {
    on_shared.push_back(nets[i]->forward(shared));
    on_own.push_back(nets[i]->forward(own[i]));
  }
  EXPECT_TRUE(ensemble.forward(shared).allclose(torch::stack(on_shared), 1e-6, 1e-6));
  EXPECT_TRUE(ensemble.forward_each(own).allclose(torch::stack(on_own), 1e-6, 1e-6));
  EXPECT_THAT([&] { ensemble.forward_each(torch::randn({3, 5, 3})); }, ThrowsWith<c10::ValueError>("vmap", "4", "3"));
}

void dropout_draws_for_each_member() {
  const Sequential net(Linear(3, 64), Dropout(0.5));
  const Ensemble ensemble(std::vector<Sequential>{net, net});
  const Tensor y = ensemble.forward(torch::ones({3}));
  EXPECT_TRUE(y.eq(0).any().item<bool>());
  EXPECT_FALSE(y[0].equal(y[1]));
}

void each_member_has_statistics() {
  std::vector<BatchNorm1d> nets;
  for (int i = 0; i < 3; ++i) nets.emplace_back(2);
  const Ensemble ensemble(nets);
  const Tensor x = torch::randn({3, 8, 2});
  ensemble.forward_each(x);
  for (int i = 0; i < 3; ++i) nets[i]->forward(x[i]);
  for (const auto& [path, value] : stack_module_state(nets).buffers.leaves()) {
    EXPECT_TRUE(value.allclose(ensemble.state().buffers[path])) << path;
  }
}

void parameters_are_the_stacked_ones_alone() {
  const auto ensemble = make_ensemble(3);
  ASSERT_EQ(ensemble.parameters().size(), 2);
  EXPECT_EQ(ensemble.parameters()[1].sizes(), torch::IntArrayRef({3, 2}));
  ensemble.forward(torch::randn({5, 3})).sum().backward();
  EXPECT_TRUE(ensemble.parameters()[1].grad().equal(torch::full({3, 2}, 5.)));
  EXPECT_FALSE(ensemble.structure()->bias.grad().defined());
}

}  // namespace

std::vector<std::string> ids() { return series({{"E", 6}}); }

std::vector<Row> rows() {
  return {
      {"E1", kBetter,
       "any module will do, and each member has initial values of its own; Python's are identical, without a word, "
       "where a class has no reset_parameters",
       each_member_has_initial_values_of_its_own},
      {"E2", kSame, "outputs have a leading dim of members, of one shared input or one for each",
       outputs_are_the_stack_of_the_members},
      {"E3", kBetter, "dropout draws for each member; Python's is an error", dropout_draws_for_each_member},
      {"E4", kBetter, "each member has running statistics; Python refuses them", each_member_has_statistics},
      {"E5", kBetter, "parameters are the stacked ones; Python lists those of the unused module too",
       parameters_are_the_stacked_ones_alone},
      {"E6", kNoMeaning, "an ensemble is not reset; make another one"},
  };
}

}  // namespace graft::testing
