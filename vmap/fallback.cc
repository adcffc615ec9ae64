#include "vmap/fallback.h"

#include <optional>
#include <ostream>

namespace graft {
namespace {

/// LibTorch's warning names the operator after these words, without its namespace's colons.
std::optional<std::string> looped_operator(const std::string& warning) {
  const std::string intro = "batching rule for ";
  const std::size_t begin = warning.find(intro);
  if (begin == std::string::npos || warning.find("performance drop") == std::string::npos) return std::nullopt;
  const std::size_t first = begin + intro.size();
  return warning.substr(first, warning.find(". ", first) - first);
}

}  // namespace

void internal::FallbackHandler::process(const c10::Warning& warning) {
  if (const auto name = looped_operator(warning.msg())) {
    note(*name);
  } else {
    previous_->process(warning);
  }
}

void internal::FallbackError::note(const std::string& name) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "vmap: ", name,
                              " has no batching rule, so it would run as a loop over the samples, and "
                              "fallback = Fallback::kError says that it must not");
}

std::ostream& operator<<(std::ostream& stream, const FallbackReport& report) {
  for (const auto& [name, count] : report.operators()) {
    stream << name << ": " << count << (count == 1 ? " time\n" : " times\n");
  }
  return stream;
}

}  // namespace graft
