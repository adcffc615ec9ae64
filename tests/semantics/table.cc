#include "tests/semantics/table.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>

namespace graft::testing {
namespace {

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return "same";
    case Verdict::kBetter:
      return "better";
    case Verdict::kNoMeaning:
      return "no meaning";
  }
  return "";
}

class SemanticsTest : public ::testing::TestWithParam<Row> {};

TEST_P(SemanticsTest, IsAsTheTableSays) {
  const Row& row = GetParam();
  std::cout << row.id << " (" << name_of(row.verdict) << "): " << row.text << '\n';
  ASSERT_EQ(row.check == nullptr, row.verdict == Verdict::kNoMeaning) << "a row has a check, or no meaning";
  if (row.check) row.check();
}

INSTANTIATE_TEST_SUITE_P(Row, SemanticsTest, ::testing::ValuesIn(rows()), [](const auto& row) { return row.param.id; });

TEST(SemanticsTableTest, HasOneRowForEachId) {
  std::multiset<std::string> have;
  for (const Row& row : rows()) have.insert(row.id);
  for (const std::string& id : ids()) EXPECT_EQ(have.count(id), 1) << id;
  EXPECT_EQ(have.size(), ids().size());
}

}  // namespace

std::vector<std::string> series(std::initializer_list<std::pair<std::string, int>> counts) {
  std::vector<std::string> all;
  for (const auto& [letter, count] : counts) {
    for (int i = 1; i <= count; ++i) all.push_back(letter + std::to_string(i));
  }
  return all;
}

}  // namespace graft::testing
