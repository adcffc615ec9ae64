// Runs every case of cases.jsonl by Graft and compares with what Python's tensordict gave. How to write the file anew:
//
//   python tests/parity/make_cases.py
//
// A case is equal to Python, or raises on both sides, or differs for a reason that is listed below.
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <string>

#include "tests/parity/case.h"

namespace graft::testing {
namespace {

/// What Graft made of a case: a value, or what it threw.
struct Outcome {
  std::optional<Value> value;
  std::string thrown;
};

Outcome outcome_of(const Json& one) {
  std::vector<TensorDict> trees;
  for (const Json& tree : one["on"]) trees.push_back(read_tree(tree));
  if (one.value("on_locked", false)) trees[0].lock_();
  try {
    return {run_operation(one["operation"], trees, one["arguments"]), ""};
  } catch (const c10::Error& error) {
    return {std::nullopt, error.what_without_backtrace()};
  }
}

/// Where Graft differs from Python on purpose.
struct Difference {
  std::string_view operation;  ///< Any, if it is empty.
  std::string_view python;     ///< How what Python raises begins; empty where Python has a result.
  std::string_view graft;      ///< How the difference, or what Graft throws, begins; empty where Graft has a result.
  std::string_view reason;
};

constexpr Difference kDifferences[] = {
    {"", "", "the batch dims allow", "dims are batch dims, where Python goes on into the dims of leaves"},
    {"permute", "", "expected all", "permute names every dim"},
    {"index_put_", "", "the source has the batch size", "index_put_ refuses a source of another batch size"},
    {"update", "", "batch size", "update refuses a tree of another batch size"},
    {"apply_", "", "cannot be written", "map_ refuses results of another shape that are views of their leaf too"},
    {"apply_two", "", "does not have the keys", "zip_map refuses leaves that only one tree has"},
    {"update_", "", "does not have these leaves", "update_ refuses leaves that the tree does not have"},
    {"select", "", "is not in Python's", "select takes a whole part though one of its leaves is named too"},
    {"set_batch_size", "", "has batch size", "parts without a batch size of their own follow that of the tree"},
    {"split_keys", "", "has batch size", "split_keys keeps the batch sizes of parts"},
    {"reduce", "", "has batch size", "amax and amin keep the batch sizes of parts"},
    {"reduce", "RuntimeError", "", "amax and amin have a form over the features"},
    {"squeeze", "TypeError", "", "squeeze of all dims may leave none"},
};

bool is_difference(const Difference& listed, const Json& one, const std::string& python, const std::string& graft) {
  const bool is_operation = listed.operation.empty() || one["operation"] == listed.operation;
  return is_operation && python.starts_with(listed.python) && python.empty() == listed.python.empty() &&
         graft.find(listed.graft) != std::string::npos && graft.empty() == listed.graft.empty();
}

/// Returns what differs, "" if nothing does.
std::string compare(const Json& one, const Outcome& graft) {
  if (!graft.value) return graft.thrown;
  if (one.contains("raises")) return "";
  std::string text = difference(*graft.value, one["result"]);
  const auto* tree = std::get_if<TensorDict>(&*graft.value);
  if (tree != nullptr && one.contains("locked") && tree->is_locked() != one["locked"].get<bool>()) {
    text += tree->is_locked() ? "\nis locked" : "\nis not locked";
  }
  return text;
}

TEST(ReplayTest, EveryCaseDoesWhatPythonDoesOrDiffersOnPurpose) {
  std::ifstream file("tests/parity/cases.jsonl");
  ASSERT_TRUE(file);
  std::map<std::string, int> operations;
  std::array<int, std::size(kDifferences)> differing = {};
  int total = 0, equal = 0, both_raise = 0;
  for (std::string line; std::getline(file, line); ++total) {
    const Json one = Json::parse(line);
    ++operations[one["operation"]];
    const Outcome graft = outcome_of(one);
    const auto python = one.value("raises", "");
    const std::string differs = compare(one, graft);
    if (python.empty() == graft.value.has_value() && (differs.empty() || !graft.value)) {
      ++(graft.value ? equal : both_raise);
      continue;
    }
    const auto listed = std::find_if(std::begin(kDifferences), std::end(kDifferences), [&](const Difference& entry) {
      return is_difference(entry, one, python, differs);
    });
    EXPECT_NE(listed, std::end(kDifferences))
        << "case " << one["id"] << ", " << one["operation"] << ' ' << one["arguments"]
        << "\nPython: " << (python.empty() ? "a value" : python)
        << "\nGraft: " << (differs.empty() ? "a value" : differs);
    if (listed != std::end(kDifferences)) ++differing[listed - std::begin(kDifferences)];
  }

  int on_purpose = 0;
  for (std::size_t i = 0; i < std::size(kDifferences); ++i) {
    EXPECT_GT(differing[i], 0) << "no case shows that " << kDifferences[i].reason;
    on_purpose += differing[i];
    std::cout << "differs " << differing[i] << " times: " << kDifferences[i].reason << "\n";
  }
  for (const std::string& name : operation_names()) EXPECT_GT(operations[name], 0) << name << " has no case";
  std::cout << "operations:";
  for (const auto& [name, count] : operations) std::cout << ' ' << name << ' ' << count;
  std::cout << '\n'
            << total << " cases: " << equal << " equal, " << both_raise << " raise on both sides, " << on_purpose
            << " differ on purpose (listed)\n";
  EXPECT_GE(total, 2000);
}

}  // namespace
}  // namespace graft::testing
