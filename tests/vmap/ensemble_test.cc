// An Ensemble that trains, and its files. What it does case by case is in tests/semantics/ensemble_test.cc.
#include "vmap/ensemble.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

namespace graft {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::nn::Linear;

std::vector<Linear> make_linears(int count) {
  std::vector<Linear> nets;
  for (int i = 0; i < count; ++i) nets.emplace_back(3, 2);
  return nets;
}

TEST(EnsembleTest, TrainsItsOwnParametersAndWritesThemBack) {
  std::vector<Linear> nets = make_linears(3);
  const Tensor before = nets[1]->weight.detach().clone();
  const Ensemble ensemble(nets);
  torch::optim::SGD optimizer(ensemble.parameters(), 0.1);
  ensemble.forward(torch::ones({5, 3})).sum().backward();
  optimizer.step();
  EXPECT_TRUE(nets[1]->weight.equal(before));
  ensemble.write_members(nets);
  EXPECT_TRUE(nets[1]->weight.allclose(before - 0.5));
}

TEST(EnsembleTest, LoadsWhatItSaved) {
  const Ensemble<Linear> saved(2, [] { return Linear(3, 2); });
  const Ensemble<Linear> loaded(2, [] { return Linear(3, 2); });
  const std::string file = testing::TempDir() + "/ensemble.graft";
  saved.save(file);
  loaded.load(file);
  const Tensor x = torch::randn({5, 3});
  EXPECT_TRUE(saved.forward(x).equal(loaded.forward(x)));
  const Ensemble<Linear> other(2, [] { return Linear(4, 2); });
  EXPECT_THAT([&] { other.load(file); }, ThrowsMessage<c10::ValueError>(HasSubstr("weight")));
}

}  // namespace
}  // namespace graft
