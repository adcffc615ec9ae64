// Runs every program of programs.jsonl by Graft and compares with what torch.func gave. How to write the file anew:
//
//   python tests/programs/make_programs.py
//
// A program is equal to Python, or raises on both sides, or is better: Python raises or is wrong, for a reason that is
// listed below, and Graft has the value that plain loops and ordinary autograd have.
#include <c10/core/DefaultDtype.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tests/programs/program.h"
#include "vmap/fallback.h"

namespace graft::testing {
namespace {

/// Where Graft may differ from Python.
struct Better {
  std::string_view python;  ///< How the text of what Python raises begins; empty where Python has results.
  std::string_view graft;   ///< The same of Graft; empty where Graft has the results of plain loops.
  std::string_view reason;
};

constexpr Better kBetter[] = {
    {"Undefined: ", "", "an unmapped result may go to any out_dim"},
    {"TypeError: cat(): argument 'dim' must be int, not NoneType", "", "chunks may return what is not mapped"},
    {"AssertionError: arg_spec must not be None", "", "no samples may be taken in chunks"},
    {"RuntimeError: linearize: ", "", "linearize nests with other transforms"},
    {"(other numbers than loops) jacfwd with a negative argnum", "", "jacfwd and hessian take negative argnums"},
    {"(other numbers than loops) a norm", "", "grad of jvp of a norm is right"},
    {"NotImplementedError: Trying to use forward AD with", "", "every loss has jvp of grad"},
    {"", "vjp: the cotangents do not fit the result", "cotangents of results without a derivative must fit too"},
};

/// What Graft made of a program: results, or what it threw.
struct Outcome {
  std::optional<Values> results;
  std::string thrown;
};

Outcome outcome_of(const Json& function) {
  try {
    return {run_program(function), ""};
  } catch (const c10::Error& error) {
    return {std::nullopt, error.what_without_backtrace()};
  } catch (const std::exception& error) {
    return {std::nullopt, error.what()};
  }
}

/// Returns what differs from stored results, "" if nothing does.
std::string difference(const Values& results, const Json& stored) {
  if (results.size() != stored.size()) return "another number of results";
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string name = "result " + std::to_string(i);
    if (results[i].sizes() != stored[i][0].get<std::vector<int64_t>>()) {
      return c10::str(name, " has shape ", results[i].sizes(), ", Python's has ", stored[i][0].dump());
    }
    if (results[i]._is_zerotensor()) return name + " is a tensor of zeros without memory";
    const Tensor numbers = results[i].to(at::kDouble).contiguous();
    for (std::size_t k = 0; k < stored[i][1].size(); ++k) {
      const double number = numbers.const_data_ptr<double>()[k], expected = stored[i][1][k].get<double>();
      if (!(std::abs(number - expected) <= 1e-10 * (1 + std::abs(expected)))) {
        return c10::str(name, " has ", number, " where Python has ", expected);
      }
    }
  }
  return "";
}

/// How often each transform and operator stands in a function, and how deep transforms nest.
struct Census {
  int add(const Json& function) {
    int depth = 0;
    for (const Json& statement : function["body"]) {
      const bool is_call = is_transform(statement);
      ++(is_call ? transforms : operators)[statement[0].get<std::string>()];
      if (is_call) depth = std::max(depth, 1 + add(statement[3]));
    }
    return depth;
  }

  std::map<std::string, int> transforms, operators;
};

template <class Key>
void print(const char* what, const std::map<Key, int>& counts) {
  std::cout << what << ":";
  for (const auto& [key, count] : counts) std::cout << " " << key << " " << count;
  std::cout << "\n";
}

/// How Graft compares with Python on all programs.
struct Comparison {
  void add(const Json& program) {
    const Outcome graft = outcome_of(program["function"]);
    const auto python = program.value("raises", "");
    if (graft.results && python.empty()) {
      check(program, difference(*graft.results, program["results"]));
      ++equal;
    } else if (!graft.results && !python.empty()) {
      check(program, graft.thrown.find("INTERNAL ASSERT") == std::string::npos ? "" : graft.thrown);
      ++both_raise;
    } else {
      if (graft.results) check(program, unlike_loops(*graft.results, program));
      const auto kind = std::find_if(std::begin(kBetter), std::end(kBetter), [&](const Better& better_kind) {
        return python.starts_with(better_kind.python) && python.empty() == better_kind.python.empty() &&
               graft.thrown.starts_with(better_kind.graft) && graft.thrown.empty() == better_kind.graft.empty();
      });
      check(program, kind != std::end(kBetter)
                         ? ""
                         : "Graft, not listed as better: " + (graft.results ? "has a value" : graft.thrown));
      if (kind != std::end(kBetter)) ++better[kind - std::begin(kBetter)];
    }
  }

  int equal = 0, both_raise = 0;
  std::array<int, std::size(kBetter)> better = {};

 private:
  static std::string unlike_loops(const Values& results, const Json& program) {
    if (!program.contains("plain")) return "Graft has a value, and there is none to compare it with";
    const std::string differs = difference(results, program["plain"]);
    return differs.empty() ? "" : "unlike plain loops, " + differs;
  }

  static void check(const Json& program, const std::string& problem) {
    EXPECT_EQ(problem, "") << "program " << program["id"] << ": " << title(program["function"]) << "\n"
                           << listing(program["function"]) << "Python: " << program.value("raises", "has a value");
  }
};

TEST(ReplayTest, EveryProgramDoesWhatPythonDoesOrBetter) {
  c10::set_default_dtype(caffe2::TypeMeta::Make<double>());
  std::ifstream file("tests/programs/programs.jsonl");
  ASSERT_TRUE(file);
  const FallbackReport loops;
  Census census;
  std::map<int, int> depths;
  Comparison comparison;
  int total = 0;
  for (std::string line; std::getline(file, line); ++total) {
    const Json program = Json::parse(line);
    ++depths[census.add(program["function"])];
    comparison.add(program);
  }

  int better = 0;
  for (std::size_t i = 0; i < std::size(kBetter); ++i) {
    EXPECT_GT(comparison.better[i], 0) << "no program shows that " << kBetter[i].reason;
    better += comparison.better[i];
    std::cout << "better " << comparison.better[i] << " times: " << kBetter[i].reason << "\n";
  }
  std::cout << "operators that ran as loops: " << loops;
  print("programs by nesting", depths);
  print("transforms", census.transforms);
  print("operators", census.operators);
  std::cout << total << " programs: " << comparison.equal << " equal, " << better << " better (listed), "
            << comparison.both_raise << " raise on both sides\n";
  EXPECT_GE(total, 1000);
}

}  // namespace
}  // namespace graft::testing
