#include "tests/programs/program.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/sin.h>
#include <c10/util/Exception.h>

#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "functional/grad.h"
#include "functional/jvp.h"
#include "functional/linearize.h"
#include "functional/tree.h"
#include "functional/vjp.h"
#include "functional/with_aux.h"
#include "vmap/jacobian.h"
#include "vmap/vmap.h"

namespace graft::testing {
namespace {

struct Results {
  Values out;
  Values aux;
};

/// A function of a program, of all its arguments as one list.
using Body = std::function<Results(const Values&)>;

// --- Lists of tensors as arguments and results

/// Returns the tensors of trees in order.
template <class... Trees>
Values flat(Trees... trees) {
  Values tensors;
  const auto add = [&](auto& tree) {
    for (const TreePart& part : collect_parts(tree)) {
      visit_tensors(part, [&](const Tensor& tensor, const TensorPlace&) { tensors.push_back(tensor); });
    }
  };
  (add(trees), ...);
  return tensors;
}

/// The function for vmap and for derivatives of many results. An auxiliary result is handed out if `aux`.
template <bool aux>
auto many(const Body& body) {
  return [&body](const auto&... arguments) {
    Results results = body(flat(arguments...));
    if constexpr (aux) {
      return WithAux{std::move(results.out), std::move(results.aux)};
    } else {
      return std::move(results.out);
    }
  };
}

/// The function for grad.
template <bool aux>
auto loss(const Body& body) {
  return [&body](const auto&... arguments) {
    Results results = body(flat(arguments...));
    if constexpr (aux) {
      return std::pair(results.out.at(0), std::move(results.aux));
    } else {
      return results.out.at(0);
    }
  };
}

/// Calls `visit` with the tuple of the arguments: each tensor is one, or with "group" the first so many are one list
/// and the others another.
template <class Visit>
Values with_arguments(const Values& values, const Json& options, const Visit& visit) {
  if (options.contains("group")) {
    const auto middle = values.begin() + options["group"].get<std::ptrdiff_t>();
    return visit(std::tuple(Values(values.begin(), middle), Values(middle, values.end())));
  }
  if (values.size() == 1) return visit(std::tuple(values[0]));
  if (values.size() == 2) return visit(std::tuple(values[0], values[1]));
  TORCH_CHECK(values.size() == 3, "a transform of a program has 1 to 3 arguments");
  return visit(std::tuple(values[0], values[1], values[2]));
}

// --- vmap

MappedDims dims_from(const Json& dims) {
  if (dims.is_null()) return std::nullopt;
  if (!dims.is_array()) return dims.get<int64_t>();
  std::vector<MappedDims> list;
  for (const Json& entry : dims) list.push_back(dims_from(entry));
  return MappedDims(std::move(list));
}

/// Of a transform's option "chunk_size".
std::optional<int64_t> chunk_size_from(const Json& options) {
  return options.contains("chunk_size") ? std::optional(options["chunk_size"].get<int64_t>()) : std::nullopt;
}

Values run_vmap(const Json& options, const Body& body, const Values& values) {
  const Json& out_dims = options["out_dims"];
  const VmapOptions vmap_options = {
      .in_dims = dims_from(options["in_dims"]),
      // The function returns one list, which has its dims as one value has.
      .out_dims = out_dims.is_array() ? MappedDims(std::vector{dims_from(out_dims)}) : dims_from(out_dims),
      .randomness = options.value("randomness", "error") == "same" ? Randomness::kSame : Randomness::kError,
      .chunk_size = chunk_size_from(options)};
  return with_arguments(values, options, [&](const auto& arguments) {
    return std::apply(vmap(many<false>(body), vmap_options), arguments);
  });
}

// --- Derivatives

/// Returns the tangents or cotangents that go with the tensors of `tree`.
template <class Tree>
Tree companions(const std::string& rule, Tree tree) {
  int64_t number = 0;
  for (const TreePart& part : collect_parts(tree)) {
    replace_tensors(part, [&](const Tensor& tensor) {
      if (rule == "sine") return tensor.sin();
      std::vector<int64_t> shape = tensor.sizes().vec();
      if (rule == "misfit") shape.push_back(2);
      return fill(shape, 70 + number++);
    });
  }
  return tree;
}

/// Returns the arguments that are differentiated, all if no number is given.
template <int... argnums, class... Arguments>
auto chosen(const std::tuple<Arguments...>& arguments) {
  if constexpr (sizeof...(argnums) == 0) {
    return arguments;
  } else {
    constexpr int count = sizeof...(Arguments);
    return std::tuple(std::get < argnums < 0 ? argnums + count : argnums > (arguments)...);
  }
}

template <bool aux, int... argnums, class... Arguments>
Values derivative(const std::string& kind, const Json& options, const Body& body,
                  const std::tuple<Arguments...>& arguments) {
  const auto call = [&](const auto& f) { return flat(std::apply(f, arguments)); };
  if (kind == "grad") return call(grad<argnums...>(loss<aux>(body)));
  if (kind == "value_and_grad") return call(value_and_grad<argnums...>(loss<aux>(body)));

  const auto f = many<aux>(body);
  const JacobianOptions jacobian_options = {.chunk_size = chunk_size_from(options)};
  if (kind == "jacrev") return call(jacrev<argnums...>(f, jacobian_options));
  if (kind == "jacfwd") return call(jacfwd<argnums...>(f, jacobian_options));

  const auto rule = options.value("companion", "");
  if (kind == "vjp") {
    auto results = std::apply([&](const auto&... each) { return vjp<argnums...>(f, each...); }, arguments);
    const Values gradients = flat(std::get<1>(results)(companions(rule, std::get<0>(results))));
    if constexpr (aux) return flat(std::get<0>(results), gradients, std::get<2>(results));
    return flat(std::get<0>(results), gradients);
  }
  const auto tangents = companions(rule, chosen<argnums...>(arguments));
  if (kind == "jvp") return flat(jvp<argnums...>(f, arguments, tangents));

  if constexpr (!aux) {
    if (kind == "hessian") return call(hessian<argnums...>(f));
    if (kind == "linearize") {
      const auto results =
          std::apply([&](const auto&... each) { return linearize<argnums...>(f, each...); }, arguments);
      return flat(results.first, results.second(internal::one_or_all(tangents)));
    }
  }
  TORCH_CHECK(false, "no transform is called ", kind);
}

/// The numbers of the arguments in the option "argnums", none if it is absent.
std::vector<int> argnums_from(const Json& options) {
  if (!options.contains("argnums")) return {};
  const Json& argnums = options["argnums"];
  return argnums.is_array() ? argnums.get<std::vector<int>>() : std::vector{argnums.get<int>()};
}

/// One choice of argnums, known when this is compiled.
template <int... argnums>
struct Choice {
  static bool is(const std::vector<int>& given) { return given == std::vector<int>{argnums...}; }
};

/// make_programs.py chooses among the same.
template <std::size_t count>
struct Choices;
template <>
struct Choices<1> {
  using Of = std::tuple<Choice<>, Choice<0>, Choice<-1>>;
};
template <>
struct Choices<2> {
  using Of = std::tuple<Choice<>, Choice<0>, Choice<1>, Choice<-1>, Choice<0, 1>, Choice<-1, 0>>;
};
template <>
struct Choices<3> {
  using Of = std::tuple<Choice<>, Choice<0>, Choice<-1>, Choice<0, 2>, Choice<-1, 1>>;
};

template <class... Arguments>
Values derivative_at(const Json& call, const Body& body, const std::tuple<Arguments...>& arguments) {
  const auto kind = call[0].get<std::string>();
  const std::vector<int> given = argnums_from(call[2]);
  std::optional<Values> results;
  const auto attempt = [&]<int... argnums>(Choice<argnums...> choice) {
    if (!choice.is(given)) return;
    results = call[3].contains("aux") ? derivative<true, argnums...>(kind, call[2], body, arguments)
                                      : derivative<false, argnums...>(kind, call[2], body, arguments);
  };
  std::apply([&](auto... choice) { (attempt(choice), ...); }, typename Choices<sizeof...(Arguments)>::Of());
  TORCH_CHECK(results, "argnums that this test does not know: ", call[2].dump());
  return *std::move(results);
}

// --- Functions

Results run_function(const Json& function, Values values);

Values run_transform(const Json& call, const Values& operands, const Values& outside) {
  const Body body = [&](const Values& arguments) {
    Values values = outside;
    values.insert(values.end(), arguments.begin(), arguments.end());
    return run_function(call[3], std::move(values));
  };
  if (call[0] == "no_grad") {
    const at::NoGradGuard guard;
    return body(operands).out;
  }
  if (call[0] == "vmap") return run_vmap(call[2], body, operands);
  return with_arguments(operands, call[2], [&](const auto& arguments) { return derivative_at(call, body, arguments); });
}

Values pick(const Values& values, const Json& numbers) {
  Values picked;
  for (const Json& number : numbers) picked.push_back(values.at(number.get<std::size_t>()));
  return picked;
}

Results run_function(const Json& function, Values values) {
  for (const Json& statement : function["body"]) {
    const Values operands = pick(values, statement[1]);
    if (is_transform(statement)) {
      const Values made = run_transform(statement, operands, values);
      values.insert(values.end(), made.begin(), made.end());
    } else {
      values.push_back(run_operator(statement, operands));
    }
  }
  return {pick(values, function["out"]), pick(values, function.value("aux", Json::array()))};
}

// --- Text

/// As Python writes it.
std::string text(const Json& value) {
  if (value.is_null()) return "None";
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& entry : value) list += (list.empty() ? "" : ", ") + text(entry);
  return "(" + list + (value.size() == 1 ? ",)" : ")");
}

std::string options_text(const Json& options) {
  std::string list;
  for (const auto& [name, value] : options.items()) {
    if (name != "makes") list += ", " + name + "=" + text(value);
  }
  return list;
}

std::string name_of(std::size_t value) { return "v" + std::to_string(value); }

std::string names(const Json& values) {
  std::string list;
  for (const Json& value : values) list += (list.empty() ? "" : ", ") + name_of(value.get<std::size_t>());
  return list;
}

/// Appends the statements of a function whose first own value has the number `next`.
void list_function(const Json& function, const std::string& indent, std::size_t next, std::string& lines) {
  for (const Json& statement : function["body"]) {
    const std::size_t count = is_transform(statement) ? statement[2].value("makes", 1) : 1;
    Json made = Json::array();
    for (std::size_t i = 0; i < count; ++i) made.push_back(next + i);
    const auto name = statement[0].get<std::string>();
    lines += indent + names(made) + " = ";
    if (is_transform(statement)) {
      const std::size_t arguments = statement[1].size();
      lines += name + "(f" + options_text(statement[2]) + ")(" + names(statement[1]) + ") where f has the arguments ";
      lines += name_of(next) + " to " + name_of(next + arguments - 1) + ":\n";
      list_function(statement[3], indent + "    ", next + arguments, lines);
    } else {
      lines += name + "(" + names(statement[1]);
      for (std::size_t i = 2; i < statement.size(); ++i) lines += "; " + text(statement[i]);
      lines += ")\n";
    }
    next += count;
  }
  lines += indent + "return " + names(function["out"]);
  if (function.contains("aux")) lines += " and as auxiliary results " + names(function["aux"]);
  lines += "\n";
}

}  // namespace

Values run_program(const Json& function) { return run_function(function, {}).out; }

std::string title(const Json& function) {
  std::string list;
  for (const Json& statement : function["body"]) {
    if (!is_transform(statement)) continue;
    list += (list.empty() ? "" : " and ") + statement[0].get<std::string>() + "(" + title(statement[3]) +
            options_text(statement[2]) + ")";
  }
  return list.empty() ? "f" : list;
}

std::string listing(const Json& function) {
  std::string lines;
  list_function(function, "  ", 0, lines);
  return lines;
}

}  // namespace graft::testing
