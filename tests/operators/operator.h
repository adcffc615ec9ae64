// The catalog of operators: torch::nn modules and functions of torch::nn::functional, each with inputs of one sample.
//
//   const Registration kLosses([](Catalog& catalog) {
//     catalog.function("mse_loss, sum", floats({{2, 3}, {2, 3}}), [](auto& x) {
//       return F::mse_loss(x[0], x[1], F::MSELossFuncOptions(torch::kSum));
//     });
//     catalog.module<nn::LinearImpl>("Linear", floats({{2, 3}}), nn::LinearOptions(3, 4));
//   });
//
// Each file of cases holds one Registration, so a test has the cases that it is linked with. What is checked of each
// is in properties.h.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cctype>
#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace graft::testing {

using torch::Tensor;
using Tensors = std::vector<Tensor>;
using Shape = std::vector<int64_t>;

/// Why a transform refuses an operator.
struct Refusal {
  std::string reason;   ///< a sentence that also says what to do instead, if anything
  std::string message;  ///< a part of each message; not pinned if empty
};

/// Of norms that keep statistics of what they have seen.
inline const Refusal kRunningStatistics = {
    "Running statistics are written in training. Hold a `BatchNormGuard`, to do without them or to freeze them, or use "
    "a norm of each sample such as `GroupNorm`. Statistics that are mapped as well, as under vmap of parameters, can "
    "be "
    "written.",
    ""};

/// A module or a function in one set-up: one row of the table.
struct Operator {
  /// "Linear", or "mse_loss, sum": what LibTorch calls it, and which set-up it is.
  std::string name = {};
  std::function<Tensors()> inputs = {};                           ///< of one sample, random
  std::function<Tensor(const Tensors&)> function = {};            ///< of one sample's inputs; empty for a module
  std::function<std::shared_ptr<torch::nn::Module>()> make = {};  ///< empty for a function
  std::function<Tensor(torch::nn::Module&, const Tensors&)> forward = {};
  /// So many of the first inputs are differentiated by; by default all that are floating, to the first that is not.
  std::size_t differentiable = kLeadingFloats;
  /// It draws random numbers: it is mapped with Randomness::kSame, and the loop draws from the same seed each time.
  bool is_random = false;
  /// Its backward is by design not its derivative, as with a padding row; jvp is the derivative.
  bool has_other_backward = false;
  /// It holds a part of itself fixed under every derivative, so finite differences say another thing.
  bool holds_a_part_fixed = false;
  Refusal refusal = {};  ///< of the transforms that refuse it, if any

  static constexpr std::size_t kLeadingFloats = 1000;

  bool is_module() const { return static_cast<bool>(make); }
};

/// Returns a result as one tensor: a tuple as all its elements in a row.
inline Tensor as_tensor(const Tensor& result) { return result; }
template <class... Results>
Tensor as_tensor(const std::tuple<Results...>& result) {
  return std::apply(
      [](const auto&... part) { return torch::cat({as_tensor(part).reshape({-1}).to(torch::kDouble)...}); }, result);
}

/// Calls `forward` with one argument for each input.
template <class Impl>
Tensor call_forward(Impl& module, const Tensors& x) {
  if constexpr (requires { module.forward(x[0]); }) {
    if (x.size() == 1) return as_tensor(module.forward(x[0]));
  }
  if constexpr (requires { module.forward(x[0], x[1]); }) {
    if (x.size() == 2) return as_tensor(module.forward(x[0], x[1]));
  }
  if constexpr (requires { module.forward(x[0], x[1], x[2]); }) {
    if (x.size() == 3) return as_tensor(module.forward(x[0], x[1], x[2]));
  }
  throw std::invalid_argument("no forward takes that many inputs");
}

/// Operators by name. The last one may be changed through the reference that is returned.
class Catalog {
 public:
  Operator& add(Operator op);

  /// \param f Tensors -> Tensor or tuple of tensors
  template <class F>
  Operator& function(std::string name, std::function<Tensors()> inputs, F f) {
    return add({.name = std::move(name), .inputs = std::move(inputs), .function = [f](const Tensors& x) {
                  return as_tensor(f(x));
                }});
  }

  /// \param arguments of the constructor; one that is a function gives the argument
  template <class Impl, class... Arguments>
  Operator& module(std::string name, std::function<Tensors()> inputs, Arguments... arguments) {
    return add(
        {.name = std::move(name),
         .inputs = std::move(inputs),
         .make = [arguments...] { return std::make_shared<Impl>(argument_of(arguments)...); },
         .forward = [](torch::nn::Module& m, const Tensors& x) { return call_forward(dynamic_cast<Impl&>(m), x); }});
  }

  const std::vector<Operator>& operators() const { return operators_; }

 private:
  template <class Argument>
  static auto argument_of(const Argument& argument) {
    if constexpr (std::is_invocable_v<Argument>) {
      return argument();
    } else {
      return argument;
    }
  }

  std::vector<Operator> operators_;
};

/// Puts cases into the catalog of this program.
struct Registration {
  explicit Registration(void (*add)(Catalog&));
};

/// Returns the operators of all cases that are linked, by name: modules first.
const std::vector<Operator>& operators();

/// Prints the name.
std::ostream& operator<<(std::ostream& stream, const Operator& op);

/// Returns the name of a parametrised test: letters, digits and underscores.
template <class Info>
std::string test_name(const Info& info) {
  std::string name = info.param.name;
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return name;
}

/// Puts a module into evaluation mode.
Operator& in_eval(Operator& op);

// --- Inputs

/// Normal random numbers in double, one tensor of each shape.
std::function<Tensors()> floats(std::vector<Shape> shapes);

/// The same between 0.1 and 0.9.
std::function<Tensors()> fractions(std::vector<Shape> shapes);

/// Integers from 0 to bound - 1.
std::function<Tensors()> integers(int64_t bound, Shape shape);

/// 1 or -1, in double.
std::function<Tensors()> signs(Shape shape);

/// Returns the inputs of all, one after the other.
std::function<Tensors()> joined(std::vector<std::function<Tensors()>> all);

}  // namespace graft::testing
