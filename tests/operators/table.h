// docs/operators.md: what each transform makes of each operator, as a table for modules and one for functions.
//
//   std::map<std::string, std::string> rows;      // lines of the table by the operator's name
//   for (const Operator& op : operators()) rows[op.name] = table_row(op, run_transforms(op));
//   file << document(rows);
//
// Each test checks the rows of its own operators; document(rows_in(text)) == text checks the rest of the file.
#pragma once

#include <map>
#include <string>

#include "tests/operators/operator.h"
#include "tests/operators/properties.h"

namespace graft::testing {

/// What rewrites the file.
inline constexpr char kWriteTable[] = "./bazelw run //tests/operators:write_table";

/// Returns "ok", "loop" and so on, as it stands in the table.
std::string name_of(Mark mark);

/// Returns the line of one operator.
std::string table_row(const Operator& op, const Row& row);

/// Returns the file from the lines of all operators(); one that is missing is left out.
std::string document(const std::map<std::string, std::string>& rows);

/// Returns the lines of operators in the text of the file.
std::map<std::string, std::string> rows_in(const std::string& text);

/// Reads the file as it is in the tree, in a test that has it as data.
std::string read_document();

}  // namespace graft::testing
