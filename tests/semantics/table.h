// The table of what to_module and its relatives do, case by case, beside what Python's tensordict does.
//
// Each case has an id, a letter for its subject and a number. A test file holds the rows of some letters: what happens
// here, and whether that is what Python does ("same"), deliberately something else ("better"), or nothing that C++ can
// have ("no meaning", with the reason). A test fails if a row is missing.
#pragma once

#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace graft::testing {

enum class Verdict { kSame, kBetter, kNoMeaning };

struct Row {
  std::string id;
  Verdict verdict;
  std::string text;                  ///< what happens; for kBetter also what Python does
  std::function<void()> check = {};  ///< proves the text; empty for kNoMeaning
};

inline void PrintTo(const Row& row, std::ostream* stream) { *stream << row.id << ": " << row.text; }

/// Each test file defines these: its rows, and the ids that must be among them.
std::vector<Row> rows();
std::vector<std::string> ids();

/// Returns A1 ... AN and so on for letters and how many ids each has.
std::vector<std::string> series(std::initializer_list<std::pair<std::string, int>> counts);

}  // namespace graft::testing
