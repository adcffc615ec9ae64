#include "functional/internal/call_advice.h"

#include <torch/nn/module.h>

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "functional/internal/norm_layers.h"

namespace graft::internal {
namespace {

/// Returns the name of a layer below `module` that writes running statistics, with its class; "" if there is none.
std::string statistics_writer(torch::nn::Module& module) {
  std::string writer;
  module.apply([&](const std::string& name, torch::nn::Module& part) {
    if (!writer.empty() || !writes_running_statistics(part)) return;
    writer = name.empty() ? "the module" : absl::StrCat("\"", name, "\"");
    absl::StrAppend(&writer, " (", part.name(), ")");
  });
  return writer;
}

std::string advice_on(const std::string& message, torch::nn::Module& module) {
  const bool writes_captured = absl::StrContains(message, "would mutate a captured Tensor");
  const bool writes_shared = absl::StrContains(message, "running_mean or running_var, which will be updated in place");
  if (const std::string writer = writes_captured || writes_shared ? statistics_writer(module) : ""; !writer.empty()) {
    return absl::StrCat("functional_call: ", writer,
                        " is in training mode and writes its running statistics in place. Give each sample or member "
                        "its own by leaves of the transform for all buffers, functional_call(net, {params, buffers}, "
                        "x); or hold BatchNormGuard(net, BatchNormPolicy::kBatchStatistics), to do without them, or "
                        "BatchNormPolicy::kFrozen, to read them only; or call eval()");
  }
  if (writes_captured) {
    return "functional_call: forward writes in place to a tensor that is no argument of the transform. If it is a "
           "buffer, give it a leaf that is one: functional_call(net, {params, buffers}, x)";
  }
  if (absl::StrContains(message, "randomness error mode")) {
    return "functional_call: say which randomness is meant, vmap(f, {.randomness = Randomness::kDifferent}) for other "
           "numbers in each sample or kSame for the same; or call eval() if it is dropout of a module that is not "
           "trained";
  }
  return "";
}

}  // namespace

void add_advice(c10::Error& error, torch::nn::Module& module) {
  const std::string advice = advice_on(error.what_without_backtrace(), module);
  if (!advice.empty()) error.add_context(advice);
}

}  // namespace graft::internal
