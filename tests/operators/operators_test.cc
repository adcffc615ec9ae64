// The test of one file of cases: no value is wrong, what is refused is refused for a reason, and the table says so.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>

#include "tests/operators/operator.h"
#include "tests/operators/properties.h"
#include "tests/operators/table.h"

namespace graft::testing {
namespace {

std::map<std::string, int>& counts() {
  static std::map<std::string, int> by_mark;
  return by_mark;
}

class OperatorsTest : public ::testing::TestWithParam<Operator> {
 protected:
  static void TearDownTestSuite() {
    std::cout << "Pairs of an operator and a transform:";
    for (const auto& [mark, count] : counts()) std::cout << " " << count << " " << mark;
    std::cout << "\n";
  }
};

TEST_P(OperatorsTest, AreRight) {
  static const auto rows = rows_in(read_document());
  const Operator& op = GetParam();
  const Row row = run_transforms(op);
  bool is_refused = false;
  for (const auto& [transform, cell] : row.cells) {
    ++counts()[name_of(cell.mark)];
    EXPECT_FALSE(cell.mark == Mark::kWrong) << transform << ": " << cell.detail;
    if (cell.mark != Mark::kRefused) continue;
    is_refused = true;
    EXPECT_NE(op.refusal.reason, "") << "is refused for no known reason: " << transform << ": " << cell.detail;
    EXPECT_NE(cell.detail.find(op.refusal.message), std::string::npos) << transform << ": " << cell.detail;
  }
  EXPECT_EQ(is_refused, !op.refusal.reason.empty());
  const auto line = rows.find(op.name);
  EXPECT_EQ(line == rows.end() ? "" : line->second, table_row(op, row))
      << "docs/operators.md is not what the code does. To rewrite it: " << kWriteTable;
}

INSTANTIATE_TEST_SUITE_P(TorchNn, OperatorsTest, ::testing::ValuesIn(operators()),
                         test_name<::testing::TestParamInfo<Operator>>);

}  // namespace
}  // namespace graft::testing
