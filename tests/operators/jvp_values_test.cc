// jvp of functions of the catalog, against values from Python's torch.func.jvp: see make_jvp_values.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "functional/jvp.h"
#include "tests/operators/operator.h"

namespace graft::testing {
namespace {

Tensor tensor_from(const nlohmann::json& entry) {
  const auto& values = entry["values"];
  const bool is_floating = std::any_of(values.begin(), values.end(), [](const auto& v) { return v.is_number_float(); });
  const auto shape = entry["shape"].get<std::vector<int64_t>>();
  if (is_floating) return torch::tensor(values.get<std::vector<double>>(), torch::kDouble).reshape(shape);
  return torch::tensor(values.get<std::vector<int64_t>>(), torch::kLong).reshape(shape);
}

Tensors tensors_from(const nlohmann::json& entries) {
  Tensors tensors;
  for (const auto& entry : entries) tensors.push_back(tensor_from(entry));
  return tensors;
}

TEST(JvpValuesTest, AreThoseOfPython) {
  std::map<std::string, Operator> by_name;
  for (const Operator& op : operators()) by_name[op.name] = op;
  const auto values = nlohmann::json::parse(std::ifstream("tests/operators/jvp_values.json"));
  EXPECT_GT(values.size(), 100u);
  for (const auto& [name, entry] : values.items()) {
    ASSERT_TRUE(by_name.contains(name)) << name << " is not in the catalog";
    const Tensors inputs = tensors_from(entry["inputs"]), directions = tensors_from(entry["directions"]);
    const auto moving_end = inputs.begin() + static_cast<std::ptrdiff_t>(directions.size());
    const auto f = [&](Tensors in) {
      in.insert(in.end(), moving_end, inputs.end());
      return by_name[name].function(in);
    };
    const Tensor tangent = jvp(f, Tensors(inputs.begin(), moving_end), directions).second;
    const Tensor expected = tensor_from(entry["tangent"]);
    ASSERT_EQ(tangent.sizes(), expected.sizes()) << name;
    EXPECT_TRUE(tangent.allclose(expected, 1e-9, 1e-9)) << name << ": " << tangent << " is not " << expected;
  }
}

}  // namespace
}  // namespace graft::testing
