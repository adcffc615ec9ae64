// What each transform makes of an operator, against ordinary autograd and finite differences.
//
// | transform | must be |
// |---|---|
// | vmap | the stack of the loop, over all inputs and over some |
// | vmap of parameters | the stack of the outputs of modules, from stack_module_state |
// | vmap(grad) | the stack of a loop of backward passes, by parameters and inputs |
// | vmap(grad) of parameters | the same, one pass for each module |
// | jvp | J v with J from backward passes, and a central difference |
// | vmap(jvp) | the same, over directions and over inputs with one direction |
// | jacrev, jacfwd | J |
// | grad(grad) | H v with H from differentiating backward passes |
// | hessian | H, symmetric, and H v is a central difference of gradients |
//
// Where autograd has no derivative, but a transform gives one, that must be what finite differences say.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/operators/operator.h"

namespace graft::testing {

/// From best to worst: a transform has the mark of the worst of its set-ups.
enum class Mark {
  kOk,
  kNoDerivative,  ///< neither the transform nor ordinary autograd has one
  kLoop,          ///< right, by LibTorch's loop over the samples
  kRefused,       ///< it throws
  kWrong,
};

struct Cell {
  Mark mark = Mark::kOk;
  std::string detail;  ///< of the set-up with this mark: the operators that loop, the message, the difference
};

struct Row {
  std::map<std::string, Cell> cells;  ///< by transform; those that have a meaning for the operator
  std::set<std::string> rules;        ///< operators that ran and for which Graft has a kernel
  std::set<std::string> loops;        ///< operators that ran as a loop
};

/// Names of transforms, in the order of the table's columns.
const std::vector<std::string>& transforms();

/// Runs every transform that has a meaning: derivatives need something to differentiate by.
Row run_transforms(const Operator& op);

}  // namespace graft::testing
