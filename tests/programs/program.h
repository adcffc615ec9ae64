// Random programs of transforms: how they are stored, and how Graft runs them.
//
// A program is a function: {"body": [statement, ...], "out": [value, ...], "aux": [value, ...]}. It sees the values of
// the place where it is called, then its arguments, then the results of its statements, numbered in this order. A
// statement is
//
//   ["mul", [2, 0]]                                              an operator, its operands, attributes if it has any
//   ["vmap", [3], {"in_dims": -1, "out_dims": 0}, function]      a transform, the arguments, options, the function
//
// make_programs.py writes them; operators.py and operators.cc say what the operators are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace graft::testing {

using at::Tensor;
using Json = nlohmann::json;
using Values = std::vector<Tensor>;

/// Returns numbers in [-1, 1), the same in both languages.
Tensor fill(at::IntArrayRef shape, int64_t seed);

/// Returns the value of a statement that is an operator.
Tensor run_operator(const Json& statement, const Values& operands);

/// Returns the results of a program that has no arguments.
Values run_program(const Json& function);

/// Returns the transforms alone: `vmap(grad(f, argnums=0), in_dims=(0, None))`.
std::string title(const Json& function);

/// Returns all statements, one a line.
std::string listing(const Json& function);

/// Whether a statement is a transform.
inline bool is_transform(const Json& statement) { return statement.size() == 4 && statement[3].is_object(); }

}  // namespace graft::testing
