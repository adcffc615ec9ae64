// What each operation of the cases is in Graft; operations/ says what it is in Python.
#include <ATen/Functions.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>

#include <functional>
#include <map>
#include <optional>

#include "tensordict/binary.h"
#include "tensordict/compare.h"
#include "tensordict/copy.h"
#include "tensordict/edit.h"
#include "tensordict/global_reduce.h"
#include "tensordict/indexing.h"
#include "tensordict/join.h"
#include "tensordict/like.h"
#include "tensordict/loss.h"
#include "tensordict/map.h"
#include "tensordict/match_keys.h"
#include "tensordict/pad_sequence.h"
#include "tensordict/partition.h"
#include "tensordict/pointwise.h"
#include "tensordict/reduce.h"
#include "tensordict/shape.h"
#include "tensordict/summary.h"
#include "tensordict/ternary.h"
#include "tensordict/unary.h"
#include "tensordict/update.h"
#include "tests/parity/case.h"

namespace graft::testing {
namespace {

using at::Tensor;
using at::indexing::TensorIndex;
using Trees = std::vector<TensorDict>;
using Sizes = std::vector<int64_t>;
using Leaves = std::vector<Tensor>;
using Operation = std::function<Value(Trees&, const Json&)>;

std::string text(const Json& json) { return json.get<std::string>(); }
Sizes sizes(const Json& json) { return json.get<Sizes>(); }

std::optional<int64_t> number_or_none(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<int64_t>(json.get<int64_t>());
}

// --- Indices

std::optional<c10::SymInt> bound(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional<c10::SymInt>(json.get<int64_t>());
}

TensorIndex read_index(const Json& written) {
  const auto& [kind, value] = *written.items().begin();
  if (kind == "int") return TensorIndex(value.get<int64_t>());
  if (kind == "slice") return TensorIndex(at::indexing::Slice(bound(value[0]), bound(value[1]), bound(value[2])));
  if (kind == "none") return TensorIndex(at::indexing::None);
  if (kind == "ellipsis") return TensorIndex(at::indexing::Ellipsis);
  return TensorIndex(read_tensor(value));
}

std::vector<TensorIndex> read_indices(const Json& written) {
  std::vector<TensorIndex> indices;
  for (const Json& index : written) indices.push_back(read_index(index));
  return indices;
}

// --- Families of functions

Value unary(Trees& on, const Json& a) {
  static const std::map<std::string, TensorDict (*)(const TensorDict&)> functions = {
      {"abs", abs},   {"neg", neg},     {"exp", exp},         {"sqrt", sqrt},
      {"sin", sin},   {"tanh", tanh},   {"sigmoid", sigmoid}, {"floor", floor},
      {"ceil", ceil}, {"round", round}, {"trunc", trunc},     {"frac", frac},
      {"sign", sign}, {"log1p", log1p}, {"erf", erf},         {"reciprocal", reciprocal}};
  if (a["lock"].get<bool>()) on[0].lock_();
  return functions.at(text(a["name"]))(on[0]);
}

TensorDict binary(const std::string& name, const TensorDict& left, const Operand& right) {
  if (name == "add") return left + right;
  if (name == "sub") return left - right;
  if (name == "mul") return left * right;
  if (name == "div") return left / right;
  if (name == "maximum") return maximum(left, right);
  if (name == "minimum") return minimum(left, right);
  if (name == "clamp_min") return clamp_min(left, right);
  if (name == "clamp_max") return clamp_max(left, right);
  return pow(left, right);
}

TensorDict binary_(const std::string& name, TensorDict left, const Operand& right) {
  if (name == "add") return left += right;
  if (name == "sub") return left -= right;
  if (name == "mul") return left *= right;
  if (name == "div") return left /= right;
  if (name == "maximum") return maximum_(left, right);
  if (name == "minimum") return minimum_(left, right);
  if (name == "clamp_min") return clamp_min_(left, right);
  if (name == "clamp_max") return clamp_max_(left, right);
  return pow_(left, right);
}

at::Scalar scalar(const Json& json) {
  return json.is_number_integer() ? at::Scalar(json.get<int64_t>()) : at::Scalar(json.get<double>());
}

Value ternary(Trees& on, const Json& a) {
  const std::string name = text(a["name"]);
  if (name == "lerp") return lerp(on[0], on[1], 0.25);
  return (name == "addcmul" ? addcmul : addcdiv)(on[0], on[1], on[2], scalar(a["value"]));
}

Value compare(Trees& on, const Json& a) {
  static const std::map<std::string, TensorDict (*)(const TensorDict&, const Operand&)> functions = {
      {"eq", eq}, {"ne", ne}, {"lt", lt}, {"le", le}, {"gt", gt}, {"ge", ge}};
  return functions.at(text(a["name"]))(on[0], on[1]);
}

Value logical(Trees& on, const Json& a) {
  const std::string name = text(a["name"]);
  return (name == "and" ? logical_and : name == "or" ? logical_or : logical_xor)(on[0], on[1]);
}

Value bitwise(Trees& on, const Json& a) {
  const std::string name = text(a["name"]);
  return (name == "and" ? bitwise_and : name == "or" ? bitwise_or : bitwise_xor)(on[0], on[1]);
}

Value with_default(Trees& on, const Json& a) {
  const Json& value = a["default"];
  const auto [left, right] = value.is_string() ? keep_common(on[0], on[1]) : fill_missing(on[0], on[1], scalar(value));
  return binary(text(a["name"]), left, right);
}

Value loss(Trees& on, const Json& a) {
  const std::string name = text(a["name"]), over = text(a["reduction"]);
  const auto reduction = over == "none"   ? at::Reduction::None
                         : over == "mean" ? at::Reduction::Mean
                                          : at::Reduction::Sum;
  if (name == "mse_loss") return mse_loss(on[0], on[1], reduction);
  return name == "l1_loss" ? l1_loss(on[0], on[1], reduction) : smooth_l1_loss(on[0], on[1], reduction);
}

Form form(const std::string& name, int64_t batch_dims) {
  Sizes reversed;
  for (int64_t dim = batch_dims; dim-- > 0;) reversed.push_back(dim);
  if (name == "view") return viewed({-1});
  if (name == "flatten") return flattened();
  if (name == "permute") return permuted(reversed);
  if (name == "transpose") return transposed(0, -1);
  if (name == "squeeze") return squeezed(0);
  return name == "unsqueeze" ? unsqueezed(0) : with_flat_keys("/");
}

Value reduce(Trees& on, const Json& a) {
  const std::string name = text(a["name"]), over = text(a["over"]);
  const ReducedDims dims = over == "all"        ? kAllDims
                           : over == "features" ? kFeatureDims
                                                : ReducedDims(a["dim"].get<int64_t>());
  const bool keepdim = a.value("keepdim", false);
  if (name == "std") return std(on[0], dims, keepdim);
  if (name == "var") return var(on[0], dims, keepdim);
  static const std::map<std::string, TensorDict (*)(const TensorDict&, const ReducedDims&, bool)> functions = {
      {"sum", sum}, {"mean", mean}, {"prod", prod}, {"amax", amax}, {"amin", amin}};
  return functions.at(name)(on[0], dims, keepdim);
}

Value reduce_all(Trees& on, const Json& a) {
  static const std::map<std::string, Tensor (*)(const TensorDict&, int64_t)> functions = {
      {"sum", global_sum}, {"mean", global_mean}, {"prod", global_prod}, {"amax", global_amax}, {"amin", global_amin}};
  return functions.at(text(a["name"]))(on[0], 0);
}

Value like(Trees& on, const Json& a) {
  const std::string name = text(a["name"]);
  if (name == "full") return full_like(on[0], 1);
  return name == "zeros" ? zeros_like(on[0]) : ones_like(on[0]);
}

/// Returns the first tree after a function has changed it.
template <typename Change>
Operation changed(Change change) {
  return [change](Trees& on, const Json& a) -> Value {
    change(on, a);
    return on[0];
  };
}

std::vector<std::string> paths(const TensorDict& tree) {
  std::vector<std::string> all;
  for (const auto& [path, leaf] : tree.leaves()) all.push_back(path);
  return all;
}

const std::map<std::string, Operation>& operations() {
  static const auto* const table = new std::map<std::string, Operation>{
      // Keys and values
      {"get", [](Trees& on, const Json& a) -> Value {
         const std::string path = text(a["path"]);
         return on[0].at(path);
       }},
      {"subtree", [](Trees& on, const Json& a) -> Value { return on[0].subtree(text(a["path"])); }},
      {"set", changed([](Trees& on, const Json& a) { on[0].set(text(a["path"]), read_tensor(a["value"])); })},
      {"set_tree", changed([](Trees& on, const Json& a) { on[0].set(text(a["path"]), on[1]); })},
      {"set_", changed([](Trees& on, const Json& a) { set_(on[0], text(a["path"]), read_tensor(a["value"])); })},
      {"update", changed([](Trees& on, const Json& a) {
         update(on[0], on[1], {.inplace = a["inplace"].get<bool>()});
       })},
      {"update_", changed([](Trees& on, const Json&) { update_(on[0], on[1]); })},
      {"select", [](Trees& on, const Json& a) -> Value {
         return select(on[0], a["paths"].get<std::vector<std::string>>(),
                       a["strict"].get<bool>() ? Absent::kError : Absent::kIgnore);
       }},
      {"exclude", [](Trees& on, const Json& a) -> Value {
         return exclude(on[0], a["paths"].get<std::vector<std::string>>());
       }},
      {"split_keys", [](Trees& on, const Json& a) -> Value {
         return split_keys(on[0], a["lists"].get<std::vector<std::vector<std::string>>>());
       }},
      {"flatten_keys", [](Trees& on, const Json&) -> Value { return flatten_keys(on[0], "/"); }},
      {"unflatten_keys", [](Trees& on, const Json&) -> Value { return unflatten_keys(on[0], "/"); }},
      {"pop", [](Trees& on, const Json& a) -> Value {
         Tensor leaf = pop(on[0], text(a["path"]));
         return std::pair(leaf, on[0]);
       }},
      {"erase", changed([](Trees& on, const Json& a) { on[0].erase(text(a["path"])); })},
      {"rename_key", changed([](Trees& on, const Json& a) { rename_key(on[0], text(a["from"]), text(a["to"])); })},
      {"paths", [](Trees& on, const Json&) -> Value { return paths(on[0]); }},
      {"numel", [](Trees& on, const Json&) -> Value { return numel(on[0]); }},
      {"bytes", [](Trees& on, const Json&) -> Value { return nbytes(on[0]); }},
      // Batch dims
      {"set_batch_size", changed([](Trees& on, const Json& a) { on[0].set_batch_size(sizes(a["sizes"])); })},
      {"index", [](Trees& on, const Json& a) -> Value { return index(on[0], read_indices(a["indices"])); }},
      {"index_put_", changed([](Trees& on, const Json& a) { index_put_(on[0], read_indices(a["indices"]), on[1]); })},
      {"view", [](Trees& on, const Json& a) -> Value { return view(on[0], sizes(a["sizes"])); }},
      {"reshape", [](Trees& on, const Json& a) -> Value { return reshape(on[0], sizes(a["sizes"])); }},
      {"flatten", [](Trees& on, const Json& a) -> Value {
         return flatten(on[0], a["start"].get<int64_t>(), a["end"].get<int64_t>());
       }},
      {"unflatten", [](Trees& on, const Json& a) -> Value {
         return unflatten(on[0], a["dim"].get<int64_t>(), sizes(a["sizes"]));
       }},
      {"permute", [](Trees& on, const Json& a) -> Value { return permute(on[0], sizes(a["dims"])); }},
      {"transpose", [](Trees& on, const Json& a) -> Value {
         return transpose(on[0], a["dim0"].get<int64_t>(), a["dim1"].get<int64_t>());
       }},
      {"movedim", [](Trees& on, const Json& a) -> Value {
         return movedim(on[0], sizes(a["source"]), sizes(a["destination"]));
       }},
      {"squeeze", [](Trees& on, const Json& a) -> Value {
         const auto dim = number_or_none(a["dim"]);
         return dim ? squeeze(on[0], *dim) : squeeze(on[0]);
       }},
      {"unsqueeze", [](Trees& on, const Json& a) -> Value { return unsqueeze(on[0], a["dim"].get<int64_t>()); }},
      {"expand", [](Trees& on, const Json& a) -> Value { return expand(on[0], sizes(a["sizes"])); }},
      {"repeat", [](Trees& on, const Json& a) -> Value { return repeat(on[0], sizes(a["repeats"])); }},
      {"repeat_interleave", [](Trees& on, const Json& a) -> Value {
         return repeat_interleave(on[0], a["repeats"].get<int64_t>(), a["dim"].get<int64_t>());
       }},
      {"flip", [](Trees& on, const Json& a) -> Value { return flip(on[0], sizes(a["dims"])); }},
      {"roll", [](Trees& on, const Json& a) -> Value { return roll(on[0], sizes(a["shifts"]), sizes(a["dims"])); }},
      {"edit", changed([](Trees& on, const Json& a) {
         edit(on[0], form(text(a["form"]), on[0].batch_dims()),
              [](TensorDict& edited) { edited.set("new", at::ones(edited.batch_size())); });
       })},
      {"unbind", [](Trees& on, const Json& a) -> Value { return unbind(on[0], a["dim"].get<int64_t>()); }},
      {"split", [](Trees& on, const Json& a) -> Value {
         const auto dim = a["dim"].get<int64_t>();
         if (a["size"].is_number()) return split(on[0], a["size"].get<int64_t>(), dim);
         return split(on[0], sizes(a["size"]), dim);
       }},
      {"chunk", [](Trees& on, const Json& a) -> Value {
         return chunk(on[0], a["chunks"].get<int64_t>(), a["dim"].get<int64_t>());
       }},
      {"stack", [](Trees& on, const Json& a) -> Value { return stack(on, a["dim"].get<int64_t>()); }},
      {"cat", [](Trees& on, const Json& a) -> Value { return cat(on, a["dim"].get<int64_t>()); }},
      {"gather", [](Trees& on, const Json& a) -> Value {
         return gather(on[0], a["dim"].get<int64_t>(), read_tensor(a["index"]));
       }},
      {"masked_select", [](Trees& on, const Json& a) -> Value { return masked_select(on[0], read_tensor(a["mask"])); }},
      {"masked_fill", [](Trees& on, const Json& a) -> Value {
         return masked_fill(on[0], read_tensor(a["mask"]), scalar(a["value"]));
       }},
      {"where", [](Trees& on, const Json& a) -> Value { return where(read_tensor(a["mask"]), on[0], on[1]); }},
      {"pad_sequence", [](Trees& on, const Json& a) -> Value {
         return pad_sequence(on, {.padding_value = scalar(a["value"])});
       }},
      // Arithmetic
      {"unary", unary},
      {"binary", [](Trees& on, const Json& a) -> Value {
         const std::string name = text(a["name"]);
         return a["in_place"].get<bool>() ? binary_(name, on[0], on[1]) : binary(name, on[0], on[1]);
       }},
      {"with_number", [](Trees& on, const Json& a) -> Value {
         return binary(text(a["name"]), on[0], scalar(a["number"]));
       }},
      {"with_tensor", [](Trees& on, const Json& a) -> Value {
         return binary(text(a["name"]), on[0], read_tensor(a["value"]));
       }},
      {"ternary", ternary},
      {"compare", compare},
      {"logical", logical},
      {"bitwise", bitwise},
      {"scaled", [](Trees& on, const Json& a) -> Value {
         return (a["name"] == "add" ? add : sub)(on[0], on[1], scalar(a["alpha"]));
       }},
      {"default", with_default},
      {"loss", loss},
      {"reduce", reduce},
      {"reduce_all", reduce_all},
      {"all_any", [](Trees& on, const Json& a) -> Value {
         return static_cast<int64_t>((a["name"] == "all" ? all(on[0]) : any(on[0])).item<bool>());
       }},
      // Leaf by leaf
      {"clone", [](Trees& on, const Json&) -> Value { return clone(on[0]); }},
      {"like", like},
      {"to", [](Trees& on, const Json& a) -> Value {
         return to(on[0], a["kind"] == "double" ? at::kDouble : a["kind"] == "float" ? at::kFloat : at::kLong);
       }},
      {"apply", [](Trees& on, const Json& a) -> Value {
         const bool doubles = a["name"] == "double";
         return map(on[0], [&](const Tensor& leaf) { return doubles ? leaf * 2 : leaf.sum(); });
       }},
      {"named_apply", [](Trees& on, const Json&) -> Value {
         return named_map(on[0], [](const std::string& path, const Tensor& leaf) {
           return leaf + static_cast<int64_t>(path.size());
         });
       }},
      {"apply_", [](Trees& on, const Json& a) -> Value {
         const bool widens = a["name"] == "wide";
         return map_(on[0], [&](const Tensor& leaf) { return widens ? at::stack(Leaves(5, leaf)) : leaf * 2 + 1; });
       }},
      {"apply_two", [](Trees& on, const Json&) -> Value {
         const auto sum = [](const Tensor& x, const Tensor& y, const Tensor& z) { return x + y * z; };
         return zip_map(on[0], on[1], on[2], sum);
       }},
  };
  return *table;
}

}  // namespace

Value run_operation(const std::string& name, std::vector<TensorDict> trees, const Json& arguments) {
  return operations().at(name)(trees, arguments);
}

std::vector<std::string> operation_names() {
  std::vector<std::string> names;
  for (const auto& [name, operation] : operations()) names.push_back(name);
  return names;
}

}  // namespace graft::testing
