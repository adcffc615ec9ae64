#include "tests/parity/case.h"

#include <ATen/Functions.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <map>
#include <sstream>
#include <utility>

#include "tensordict/nested_key.h"

namespace graft::testing {
namespace {

constexpr double kTolerance = 1e-6;  // of operations on numbers of 32 bits

at::ScalarType kind_of(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kinds = {
      {"float", at::kFloat}, {"double", at::kDouble}, {"long", at::kLong}, {"bool", at::kBool}};
  return kinds.at(name);
}

/// Numbers that JSON does not have are stored as Python writes them.
double number(const Json& written) {
  if (!written.is_string()) return written.get<double>();
  if (written == "nan") return std::nan("");
  return written == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

bool is_near(double value, double expected) {
  if (std::isnan(expected)) return std::isnan(value);
  return value == expected || std::abs(value - expected) <= kTolerance * (1 + std::abs(expected));
}

std::string differs(const at::Tensor& value, const Json& python) {
  std::ostringstream text;
  const auto shape = python[1].get<std::vector<int64_t>>();
  if (value.scalar_type() != kind_of(python[0])) {
    text << "is of " << value.dtype() << ", Python's of " << python[0];
  } else if (value.sizes() != shape) {
    text << "has shape " << value.sizes() << ", Python's " << at::IntArrayRef(shape);
  } else {
    const at::Tensor numbers = value.to(at::kDouble).contiguous();
    for (std::size_t i = 0; i < python[2].size(); ++i) {
      const double got = numbers.const_data_ptr<double>()[i];
      if (is_near(got, number(python[2][i]))) continue;
      text << "has " << got << " where Python has " << python[2][i];
      break;
    }
  }
  return text.str();
}

std::string differs(const TensorDict& tree, const Json& python) {
  std::ostringstream text;
  if (tree.batch_size() != python["batch"].get<std::vector<int64_t>>()) {
    text << "\nbatch size " << at::IntArrayRef(tree.batch_size()) << ", Python's " << python["batch"];
  }
  for (const auto& [path, leaf] : tree.leaves()) {
    if (!python["leaves"].contains(path)) text << "\n\"" << path << "\" is not in Python's";
  }
  for (const auto& [path, leaf] : python["leaves"].items()) {
    const at::Tensor* value = tree.find(path);
    const std::string differing = value == nullptr ? "is missing" : differs(*value, leaf);
    if (!differing.empty()) text << "\n\"" << path << "\" " << differing;
  }
  for (const auto& [path, sizes] : python["parts"].items()) {
    if (!tree.contains(path) || tree.find(path)) continue;
    if (tree.batch_size(path) == sizes.get<std::vector<int64_t>>()) continue;
    text << "\npart \"" << path << "\" has batch size " << at::IntArrayRef(tree.batch_size(path)) << ", Python's "
         << sizes;
  }
  return text.str();
}

std::string differs(const std::vector<TensorDict>& trees, const Json& python) {
  if (trees.size() != python.size()) return "another number of trees";
  std::string text;
  for (std::size_t i = 0; i < trees.size(); ++i) text += differs(trees[i], python[i]);
  return text;
}

std::string differs(const std::pair<at::Tensor, TensorDict>& both, const Json& python) {
  return differs(both.first, python[0]) + differs(both.second, python[1]);
}

std::string differs(const std::vector<std::string>& paths, const Json& python) {
  return Json(paths) == python ? "" : "the paths " + Json(paths).dump() + ", Python's are " + python.dump();
}

std::string differs(int64_t value, const Json& python) {
  const int64_t expected = python.is_boolean() ? python.get<bool>() : python.get<int64_t>();
  return value == expected ? "" : std::to_string(value) + ", Python has " + python.dump();
}

}  // namespace

at::Tensor read_tensor(const Json& written) {
  std::vector<double> numbers;
  for (const Json& one : written[2]) numbers.push_back(number(one));
  const at::Tensor flat = numbers.empty() ? at::empty({0}, at::kDouble) : at::tensor(numbers, at::kDouble);
  return flat.to(kind_of(written[0])).reshape(written[1].get<std::vector<int64_t>>());
}

TensorDict read_tree(const Json& written) {
  TensorDict tree(written["batch"].get<std::vector<int64_t>>());
  for (const auto& [path, leaf] : written["leaves"].items()) tree.set(path, read_tensor(leaf));
  for (const auto& [path, sizes] : written["parts"].items()) {
    tree.set_batch_size(path, sizes.get<std::vector<int64_t>>());
  }
  return tree;
}

std::string difference(const Value& value, const Json& python) {
  return std::visit([&](const auto& alternative) { return differs(alternative, python); }, value);
}

}  // namespace graft::testing
