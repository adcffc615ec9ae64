#include "functional/internal/tangents.h"

#include <c10/util/Exception.h>

#include <string>

#include "tensordict/structure.h"

namespace graft::internal {
namespace {

std::string mismatch(const Tensor& given, const Tensor& expected) {
  if (!given.defined() || !expected.defined()) {
    if (given.defined() == expected.defined()) return "";
    return given.defined() ? "a tensor, expected none" : "undefined, expected a tensor";
  }
  if (given.sizes() != expected.sizes()) return c10::str("shape ", given.sizes(), ", expected ", expected.sizes());
  if (given.scalar_type() == expected.scalar_type()) return "";
  return c10::str(given.scalar_type(), ", expected ", expected.scalar_type());
}

/// Do the parts stand at the same places, and are they of the same kinds? (The sizes of vectors may differ.)
bool are_alike(const std::vector<TreePart>& left, const std::vector<TreePart>& right) {
  if (left.size() != right.size()) return false;
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].path != right[i].path || left[i].value.index() != right[i].value.index()) return false;
  }
  return true;
}

}  // namespace

std::vector<Tensor> tensors_like(std::string_view call, std::string_view what, std::string_view of,
                                 const std::vector<TreePart>& given, const std::vector<TreePart>& expected) {
  TORCH_CHECK_VALUE(are_alike(given, expected), call, ": the ", what, " consist of ", given.size(),
                    " tensors and trees, the ", of, " of ", expected.size());
  std::string problems;
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < given.size(); ++i) {
    std::string problem;
    if (Tensor* const* tensor = std::get_if<Tensor*>(&given[i].value)) {
      problem = mismatch(**tensor, *std::get<Tensor*>(expected[i].value));
      if (!problem.empty()) problem.insert(0, "\n  ");
      tensors.push_back(**tensor);
    } else {
      const TensorDict& tree = *std::get<TensorDict*>(given[i].value);
      const TensorDict& reference = *std::get<TensorDict*>(expected[i].value);
      problem = describe_mismatch(tree, reference, {.devices = false});
      if (problem.empty()) {
        for (const Tensor& leaf : aligned_values(call, reference, tree)) tensors.push_back(leaf);
      }
    }
    if (problem.empty()) continue;
    problems += given[i].path.empty() ? problem : "\n " + given[i].path + ":" + problem;
  }
  TORCH_CHECK_VALUE(problems.empty(), call, ": the ", what, " do not fit the ", of, ":", problems);
  return tensors;
}

std::vector<Tensor> tensors_of(const std::vector<TreePart>& parts) {
  std::vector<Tensor> tensors;
  for (const TreePart& part : parts) {
    visit_tensors(part, [&](const Tensor& tensor, const TensorPlace&) { tensors.push_back(tensor); });
  }
  return tensors;
}

void set_tensors(const std::vector<TreePart>& parts, std::vector<Tensor> tensors) {
  auto next = tensors.begin();
  for (const TreePart& part : parts) {
    replace_tensors(part, [&](const Tensor&) { return std::move(*next++); });
  }
}

}  // namespace graft::internal
