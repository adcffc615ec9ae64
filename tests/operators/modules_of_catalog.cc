// The torch::nn modules that hold tensors, from tests/testing/torch_modules.h.
#include <cctype>
#include <map>
#include <string>

#include "tests/operators/operator.h"
#include "tests/testing/torch_modules.h"

namespace graft::testing {
namespace {

/// Returns "Conv2d, in groups" for Conv2dInGroups of the class Conv2d.
std::string spaced_name(const TorchModule& entry) {
  std::string of_class = entry.make()->name();  // torch::nn::Conv2dImpl
  of_class = of_class.substr(of_class.rfind(':') + 1);
  of_class.erase(of_class.size() - std::string("Impl").size());
  std::string name = entry.name.substr(0, of_class.size());
  const std::string rest = entry.name.substr(of_class.size());
  if (!rest.empty()) name += ',';
  for (const char letter : rest) {
    if (std::isupper(static_cast<unsigned char>(letter))) name += ' ';
    name += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return name;
}

/// Refusals by the names of entries.
std::map<std::string, Refusal> refusals() {
  std::map<std::string, Refusal> all;
  const auto add = [&](const Refusal& refusal, const std::vector<std::string>& names) {
    for (const std::string& name : names) all[name] = refusal;
  };
  add(kRunningStatistics, {"BatchNorm1dInTraining", "BatchNorm2dInTraining", "BatchNorm3dInTraining",
                           "InstanceNorm1dWithStatisticsInTraining", "InstanceNorm2dWithStatisticsInTraining",
                           "InstanceNorm3dWithStatisticsInTraining"});
  add({"`max_norm` writes the weight in place. Take the norm outside: `at::renorm` of the weight before the call.", ""},
      {"EmbeddingWithMaxNorm", "EmbeddingBagWithMaxNorm"});
  add({"A sparse gradient cannot be mapped. Use `sparse(false)`.", "parse"}, {"EmbeddingSparse", "EmbeddingBagSparse"});
  add({"Which of its heads run depends on the values of the targets. Use `log_prob` and `nll_loss`.", ""},
      {"AdaptiveLogSoftmaxWithLoss"});
  add({"The result is written into a new tensor, which is not mapped if the input is not. Map the input as well: one "
       "copy for each module.",
       "vmap"},
      {"AdaptiveLogSoftmaxWithLossAsLogProb"});
  return all;
}

const Registration kModules([](Catalog& all) {
  const auto refused = refusals();
  for (const TorchModule& entry : torch_modules()) {
    Operator& op =
        all.add({.name = spaced_name(entry), .inputs = entry.inputs, .make = entry.make, .forward = entry.call});
    op.has_other_backward = entry.name == "EmbeddingWithPadding" || entry.name == "EmbeddingScaledByFrequency";
    if (entry.name == "BCELoss") op.differentiable = 1;  // what it aims at are the ends of the range
    if (const auto refusal = refused.find(entry.name); refusal != refused.end()) op.refusal = refusal->second;
  }
});

}  // namespace
}  // namespace graft::testing
