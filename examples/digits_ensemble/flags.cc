#include "examples/digits_ensemble/flags.h"

#include <absl/flags/commandlineflag.h>
#include <absl/flags/reflection.h>
#include <absl/strings/str_format.h>
#include <c10/util/Exception.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace digits_ensemble {
namespace {

/// An argument `--name=value` or `--name`, taken apart.
struct Argument {
  explicit Argument(std::string_view argument) {
    const std::size_t equals = argument.find('=');
    name = argument.substr(2, equals - 2);
    if (equals != argument.npos) value = argument.substr(equals + 1);
  }

  std::string name;
  std::optional<std::string> value;
};

bool is_flag(std::string_view argument) { return argument.starts_with("--"); }

void set_flag(absl::CommandLineFlag& flag, const std::string& value) {
  std::string reason;
  TORCH_CHECK_VALUE(flag.ParseFrom(value, &reason), "--", std::string(flag.Name()), "=", value, ": expected ",
                    flag.IsOfType<bool>() ? "true or false" : "a whole number");
}

}  // namespace

void read_flags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    TORCH_CHECK_VALUE(is_flag(argv[i]), "\"", argv[i], "\" is not a flag; --help lists the flags");
    Argument argument(argv[i]);
    absl::CommandLineFlag* flag = absl::FindCommandLineFlag(argument.name);
    TORCH_CHECK_VALUE(flag != nullptr, "--", argument.name, ": there is no such flag; --help lists the flags");
    if (!argument.value && flag->IsOfType<bool>()) argument.value = "true";
    if (!argument.value) {
      TORCH_CHECK_VALUE(i + 1 < argc && !is_flag(argv[i + 1]), "--", argument.name, ": the value is missing");
      argument.value = argv[++i];
    }
    set_flag(*flag, *argument.value);
  }
}

void print_flags(std::ostream& out) {
  std::map<std::string, const absl::CommandLineFlag*> sorted;
  for (const auto& [name, flag] : absl::GetAllFlags()) sorted.emplace(name, flag);
  for (const auto& [name, flag] : sorted) {
    const std::string start = flag->DefaultValue();
    out << absl::StreamFormat("  --%-10s %s%s\n", name, flag->Help(), start.empty() ? "" : " (" + start + ")");
  }
}

}  // namespace digits_ensemble
