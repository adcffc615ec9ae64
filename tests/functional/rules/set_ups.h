// Every way to transform an operator, each against a loop that uses ordinary autograd alone.
//
//   check_set_ups({.name = "dot", .f = [](const Tensors& in) { return in[0].dot(in[1]); },
//                  .make = [] { return Tensors{random({3}), random({3})}; }, .differentiable = 2});
//
// | set-up | what is done |
// |---|---|
// | b, b1, b2 | vmap over all inputs, over the first alone, over all but the first |
// | c | vmap of grad |
// | d | jvp |
// | e1, e2 | vmap of jvp: over tangents alone, over inputs with one tangent |
// | r | vmap over cotangents of the pullback of vjp |
// | h1, h2, h3, h4 | jvp of grad, grad of grad, vmap over tangents of jvp of grad, grad of jvp |
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace graft::testing {

using at::Tensor;
using Tensors = std::vector<Tensor>;

/// A function of one sample.
struct OperatorCase {
  std::string name;
  std::function<Tensor(const Tensors&)> f;  ///< of a floating type, of any shape
  std::function<Tensors()> make;            ///< inputs of one sample, random; the shapes are always the same
  std::size_t differentiable = 1;           ///< so many of the first inputs have derivatives
  double tolerance = 1e-9;                  ///< relative to the largest element
};

/// What a set-up did: "ok"; "n/d" if ordinary autograd has no derivative either; "loop: op, op", right but by
/// LibTorch's loop over the samples; "wrong by x"; "throws: message".
using Outcomes = std::map<std::string, std::string>;

/// Runs the set-ups. \param of which; all that have a meaning if none is named.
Outcomes run_set_ups(const OperatorCase& test, const std::vector<std::string>& of = {});

/// Expects "ok" or "n/d" of every set-up except those named, which must do what is said: a prefix of the outcome.
void check_set_ups(const OperatorCase& test, const Outcomes& exceptions = {});

/// Random numbers in double.
Tensor random(at::IntArrayRef sizes);

}  // namespace graft::testing
