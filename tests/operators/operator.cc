#include "tests/operators/operator.h"

#include <algorithm>
#include <stdexcept>

namespace graft::testing {
namespace {

using Adder = void (*)(Catalog&);

std::vector<Adder>& adders() {
  static std::vector<Adder> all;
  return all;
}

}  // namespace

Operator& Catalog::add(Operator op) {
  operators_.push_back(std::move(op));
  return operators_.back();
}

Registration::Registration(Adder add) { adders().push_back(add); }

const std::vector<Operator>& operators() {
  static const std::vector<Operator> all = [] {
    Catalog catalog;
    for (const Adder add : adders()) add(catalog);
    std::vector<Operator> sorted = catalog.operators();
    std::sort(sorted.begin(), sorted.end(), [](const Operator& left, const Operator& right) {
      return std::pair(!left.is_module(), left.name) < std::pair(!right.is_module(), right.name);
    });
    const auto same = std::adjacent_find(sorted.begin(), sorted.end(), [](const Operator& left, const Operator& right) {
      return left.name == right.name;
    });
    if (same != sorted.end()) throw std::invalid_argument("two operators have the name " + same->name);
    return sorted;
  }();
  return all;
}

std::ostream& operator<<(std::ostream& stream, const Operator& op) { return stream << op.name; }

Operator& in_eval(Operator& op) {
  op.make = [make = std::move(op.make)] {
    auto module = make();
    module->eval();
    return module;
  };
  return op;
}

std::function<Tensors()> floats(std::vector<Shape> shapes) {
  return [shapes = std::move(shapes)] {
    Tensors inputs;
    for (const Shape& shape : shapes) inputs.push_back(torch::randn(shape, torch::kDouble));
    return inputs;
  };
}

std::function<Tensors()> fractions(std::vector<Shape> shapes) {
  return [shapes = std::move(shapes)] {
    Tensors inputs;
    for (const Shape& shape : shapes) inputs.push_back(torch::rand(shape, torch::kDouble) * 0.8 + 0.1);
    return inputs;
  };
}

std::function<Tensors()> integers(int64_t bound, Shape shape) {
  return [=] { return Tensors{torch::randint(bound, shape, torch::kLong)}; };
}

std::function<Tensors()> signs(Shape shape) {
  return [=] { return Tensors{torch::randint(2, shape).to(torch::kDouble) * 2 - 1}; };
}

std::function<Tensors()> joined(std::vector<std::function<Tensors()>> all) {
  return [all = std::move(all)] {
    Tensors inputs;
    for (const auto& draw : all) {
      for (const Tensor& tensor : draw()) inputs.push_back(tensor);
    }
    return inputs;
  };
}

}  // namespace graft::testing
