#include "tensordict/summary.h"

#include <algorithm>
#include <cstddef>
#include <iomanip>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "tensordict/internal/outline.h"
#include "tensordict/ties.h"

namespace graft {
namespace {

struct Totals {
  int64_t leaves = 0, numbers = 0, bytes = 0;

  Totals& operator+=(const Totals& other) {
    leaves += other.leaves, numbers += other.numbers, bytes += other.bytes;
    return *this;
  }
};

Totals totals_of(const at::Tensor& leaf) {
  return {1, leaf.numel(), leaf.numel() * static_cast<int64_t>(leaf.element_size())};
}

/// Returns what each leaf adds: nothing where an earlier one is the same tensor.
std::vector<Totals> totals_of_leaves(const TensorDict& tree) {
  const std::vector<std::size_t> ties = tie_positions(tree.values());
  std::vector<Totals> totals(tree.size());
  for (std::size_t i = 0; i < tree.size(); ++i) {
    totals[i] = ties[i] == i ? totals_of(tree.values()[i]) : Totals{.leaves = 1};
  }
  return totals;
}

Totals total_of(const TensorDict& tree) {
  Totals total;
  for (const Totals& leaf : totals_of_leaves(tree)) total += leaf;
  return total;
}

/// Writes a number with commas between thousands.
std::string with_commas(int64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

/// A table whose first column is text, the others numbers.
class Table {
 public:
  void add(std::vector<std::string> row) {
    widths_.resize(row.size());
    for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], row[i].size());
    rows_.push_back(std::move(row));
  }

  std::string text() const {
    std::ostringstream text;
    for (const auto& row : rows_) {
      text << std::left << std::setw(static_cast<int>(widths_[0])) << row[0] << std::right;
      for (std::size_t i = 1; i < row.size(); ++i) text << "  " << std::setw(static_cast<int>(widths_[i])) << row[i];
      text << '\n';
    }
    return text.str();
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

void add_row(const std::string& name, const Totals& totals, Table& table) {
  table.add({name, with_commas(totals.leaves), with_commas(totals.numbers), format_bytes(totals.bytes)});
}

}  // namespace

int64_t numel(const TensorDict& tree) { return total_of(tree).numbers; }

int64_t nbytes(const TensorDict& tree) { return total_of(tree).bytes; }

std::string format_bytes(int64_t bytes) {
  constexpr int64_t kUnit = 1024;
  if (bytes < kUnit) return std::to_string(bytes) + " B";
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  const std::vector<std::string> names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  while (amount >= kUnit) {
    amount /= kUnit;
    ++unit;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << amount << ' ' << names[unit];
  return text.str();
}

std::string summary(const TensorDict& tree, int64_t depth) {
  const std::vector<internal::OutlineLine> lines = internal::outline(tree);
  const std::vector<Totals> leaves = totals_of_leaves(tree);
  std::vector<Totals> totals(lines.size());
  for (std::size_t i = lines.size(); i-- > 0;) {
    if (lines[i].leaf) totals[i] = leaves[*lines[i].leaf];
    if (lines[i].around) totals[*lines[i].around] += totals[i];
  }
  Table table;
  table.add({"", "leaves", "numbers", "bytes"});
  add_row("all", total_of(tree), table);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].depth >= depth) continue;
    add_row(std::string(2 * static_cast<std::size_t>(lines[i].depth), ' ') + lines[i].name, totals[i], table);
  }
  return table.text();
}

}  // namespace graft
