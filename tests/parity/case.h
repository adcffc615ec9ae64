// A case of cases.jsonl: trees, arguments, and values to compare with those that Python has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft::testing {

using Json = nlohmann::ordered_json;  // leaves have an order

/// What an operation returns.
using Value = std::variant<TensorDict, std::vector<TensorDict>, at::Tensor, std::vector<std::string>, int64_t,
                           std::pair<at::Tensor, TensorDict>>;

at::Tensor read_tensor(const Json& written);
TensorDict read_tree(const Json& written);

/// Returns what differs between a value and what Python has, "" if nothing does.
std::string difference(const Value& value, const Json& python);

/// Does what the operation of the case does. \throws what it throws.
Value run_operation(const std::string& name, std::vector<TensorDict> trees, const Json& arguments);

/// Returns the names of all operations.
std::vector<std::string> operation_names();

}  // namespace graft::testing
