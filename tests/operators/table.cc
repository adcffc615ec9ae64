#include "tests/operators/table.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace graft::testing {
namespace {

constexpr char kHead[] =
    R"(# Operators under transforms

Every `torch::nn` module and every function of `torch::nn::functional`, in double, under every transform.
`./bazelw run //tests/operators:write_table` writes this file; `./bazelw test //tests/operators/...` fails if a line of
it is not what the code does, or if a value is wrong.

| mark | meaning |
|---|---|
| ok | equal to the loop of ordinary autograd, one sample or module at a time, and to finite differences |
| loop | the same values, by LibTorch's loop over the samples: right, but slow |
| none | ordinary autograd has no such derivative either |
| refused | it throws; [why, and what to do instead](#what-is-refused) |
| - | has no meaning: no parameters, or nothing to differentiate |

What a transform must equal is in [properties.h](../tests/operators/properties.h). A mark is the worst of several
set-ups: `vmap` maps all inputs, the first alone, and all but the first; `vmap(jvp)` maps directions, and inputs with
one direction. "Of parameters" maps over modules that `stack_module_state` has stacked. Other derivatives are by
parameters and inputs at once, with buffers as they are.

Random operators run with `Randomness::kSame` and equal a loop in which each call starts from the same seed. Without a
choice they throw, and `Randomness::kDifferent` draws for each sample.

The backward of an embedding with `padding_idx` or `scale_grad_by_freq` is by design not its derivative; forward mode
gives the derivative.

The last column lists the operators of the case for which Graft has a rule ([functional/rules](../functional/rules)),
and those that ran as a loop. The rest is LibTorch's own, or is made of such operators.
)";

/// Columns, by what they are for.
std::vector<std::string> columns(bool of_modules) {
  std::vector<std::string> names;
  for (const std::string& name : transforms()) {
    if (of_modules || name.find("of parameters") == std::string::npos) names.push_back(name);
  }
  return names;
}

std::string quoted(const std::string& name) {
  const auto comma = name.find(',');
  return comma == std::string::npos ? "`" + name + "`" : "`" + name.substr(0, comma) + "`" + name.substr(comma);
}

std::string list_of(const std::set<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "`" : ", `") + name + "`";
  return list;
}

std::string table(const std::map<std::string, std::string>& rows, bool of_modules) {
  std::ostringstream text;
  std::map<std::string, int> counts;
  text << "\n| " << (of_modules ? "module" : "function");
  for (const std::string& name : columns(of_modules)) text << " | " << name;
  text << " | rules |\n|---";
  for (std::size_t i = 0; i < columns(of_modules).size(); ++i) text << "|---";
  text << "|---|\n";
  for (const Operator& op : operators()) {
    if (op.is_module() != of_modules || rows.count(op.name) == 0) continue;
    const std::string& row = rows.at(op.name);
    text << row << "\n";
    for (const Mark mark : {Mark::kOk, Mark::kLoop, Mark::kNoDerivative, Mark::kRefused}) {
      const std::string cell = "| " + name_of(mark) + " ";
      for (auto at = row.find(cell); at != std::string::npos; at = row.find(cell, at + 1)) ++counts[name_of(mark)];
    }
  }
  text << "\nPairs of a case and a transform: ";
  const char* separator = "";
  for (const auto& [name, count] : counts) {
    text << separator << count << " " << name;
    separator = ", ";
  }
  text << ".\n";
  return text.str();
}

std::string refusals() {
  std::map<std::string, std::string> names;
  for (const Operator& op : operators()) {
    std::string& list = names[op.refusal.reason];
    list += (list.empty() ? "" : "; ") + quoted(op.name);
  }
  names.erase("");
  std::string text;
  for (const auto& [reason, list] : names) text += "\n- " + reason + " (" + list + ")";
  return text + "\n";
}

}  // namespace

std::string name_of(Mark mark) {
  switch (mark) {
    case Mark::kOk:
      return "ok";
    case Mark::kNoDerivative:
      return "none";
    case Mark::kLoop:
      return "loop";
    case Mark::kRefused:
      return "refused";
    case Mark::kWrong:
      break;
  }
  return "WRONG";
}

std::string table_row(const Operator& op, const Row& row) {
  std::string text = "| " + quoted(op.name);
  for (const std::string& name : columns(op.is_module())) {
    const auto cell = row.cells.find(name);
    text += " | " + (cell == row.cells.end() ? "-" : name_of(cell->second.mark));
  }
  const std::string loops = row.loops.empty() ? "" : "loops: " + list_of(row.loops);
  const std::string rules = list_of(row.rules);
  return text + " | " + rules + (rules.empty() || loops.empty() ? "" : "; ") + loops + " |";
}

std::string document(const std::map<std::string, std::string>& rows) {
  return kHead + std::string("\n## Modules\n") + table(rows, true) + "\n## Functions\n" + table(rows, false) +
         "\n## What is refused\n" + refusals();
}

std::map<std::string, std::string> rows_in(const std::string& text) {
  std::map<std::string, std::string> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| `")) continue;
    std::string name = line.substr(2, line.find(" | ") - 2);
    name.erase(std::remove(name.begin(), name.end(), '`'), name.end());
    rows[name] = line;
  }
  return rows;
}

std::string read_document() {
  std::ostringstream text;
  text << std::ifstream("docs/operators.md").rdbuf();
  return text.str();
}

}  // namespace graft::testing
