// What is wrong, slow or refused is found.
#include "tests/operators/properties.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <string>

namespace graft::testing {
namespace {

/// The row of a function of three numbers.
template <class F>
Row row_of(F f) {
  Catalog catalog;
  return run_transforms(catalog.function("f", fractions({{3}}), f));
}

TEST(PropertiesTest, FindsNothingInARightFunction) {
  const Row row = row_of([](auto& x) { return x[0].sin() * x[0].sum(); });
  EXPECT_EQ(row.cells.size(), 8u);
  for (const auto& [transform, cell] : row.cells) EXPECT_TRUE(cell.mark == Mark::kOk) << transform << cell.detail;
  EXPECT_TRUE(row.rules.empty());
}

TEST(PropertiesTest, FindsNothingInARightModule) {
  Catalog catalog;
  const Row row =
      run_transforms(catalog.module<torch::nn::LinearImpl>("Linear", floats({{2, 3}}), torch::nn::LinearOptions(3, 2)));
  EXPECT_EQ(row.cells.size(), transforms().size());
  for (const auto& [transform, cell] : row.cells) EXPECT_TRUE(cell.mark == Mark::kOk) << transform << cell.detail;
}

TEST(PropertiesTest, FindsAMapThatDiffersFromTheLoop) {
  int64_t calls = 0;
  const Row row = row_of([&calls](auto& x) { return x[0] * ++calls; });
  EXPECT_TRUE(row.cells.at("vmap").mark == Mark::kWrong);
}

TEST(PropertiesTest, FindsADerivativeThatDiffersFromDifferences) {
  const Row row = row_of([](auto& x) { return x[0].detach() * x[0]; });
  EXPECT_TRUE(row.cells.at("vmap").mark == Mark::kOk);
  EXPECT_TRUE(row.cells.at("jvp").mark == Mark::kWrong);
  EXPECT_TRUE(row.cells.at("hessian").mark == Mark::kWrong);
}

TEST(PropertiesTest, FindsALoop) {
  const Row row = row_of([](auto& x) { return at::special_log_ndtr(x[0]); });
  EXPECT_TRUE(row.cells.at("vmap").mark == Mark::kLoop);
  EXPECT_EQ(row.loops, std::set<std::string>{"aten::special_log_ndtr"});
}

TEST(PropertiesTest, FindsARefusal) {
  const Row row = row_of([](auto& x) { return x[0] * x[0].sum().template item<double>(); });
  EXPECT_TRUE(row.cells.at("vmap").mark == Mark::kRefused);
  EXPECT_NE(row.cells.at("vmap").detail.find("over all inputs: vmap: "), std::string::npos);
}

TEST(PropertiesTest, KnowsWhereThereIsNoDerivative) {
  const Row row = row_of([](auto& x) { return at::igamma(x[0], x[0]); });
  EXPECT_TRUE(row.cells.at("vmap").mark == Mark::kOk);
  EXPECT_TRUE(row.cells.at("vmap(grad)").mark == Mark::kNoDerivative);
}

TEST(PropertiesTest, NotesRules) {
  const Row row = row_of([](auto& x) { return at::mse_loss(x[0], x[0] * x[0]); });
  EXPECT_EQ(row.rules, std::set<std::string>{"mse_loss"});
}

}  // namespace
}  // namespace graft::testing
