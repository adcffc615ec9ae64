// Writes docs/operators.md, and prints what is not ok: ./bazelw run //tests/operators:write_table
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>

#include "tests/operators/operator.h"
#include "tests/operators/properties.h"
#include "tests/operators/table.h"

int main() {
  using namespace graft::testing;
  const char* const root = std::getenv("BUILD_WORKSPACE_DIRECTORY");
  if (root == nullptr) {
    std::cerr << "run me by " << kWriteTable << "\n";
    return 1;
  }
  std::map<std::string, std::string> rows;
  for (const Operator& op : operators()) {
    const Row row = run_transforms(op);
    rows[op.name] = table_row(op, row);
    for (const auto& [transform, cell] : row.cells) {
      if (cell.mark >= Mark::kLoop) {
        std::cout << op.name << ", " << transform << ": " << name_of(cell.mark) << ", " << cell.detail << std::endl;
      }
    }
  }
  std::ofstream(std::string(root) + "/docs/operators.md") << document(rows);
  std::cout << rows.size() << " operators\n";
}
