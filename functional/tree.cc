#include "functional/tree.h"

namespace graft {

void replace_tensors(const TreePart& part, absl::FunctionRef<Tensor(const Tensor&)> change) {
  if (Tensor* const* tensor = std::get_if<Tensor*>(&part.value)) {
    **tensor = change(**tensor);
    return;
  }
  TensorDict& tree = *std::get<TensorDict*>(part.value);
  std::vector<Tensor> values;
  values.reserve(tree.size());
  for (const Tensor& value : tree.values()) values.push_back(change(value));
  tree = tree.with_values(std::move(values));
}

std::string TensorPlace::describe(const std::string& owner) const {
  const std::string place = owner + part.path;
  return leaf == nullptr ? place : "leaf \"" + *leaf + "\" of " + place;
}

void visit_tensors(const TreePart& part, absl::FunctionRef<void(const Tensor&, const TensorPlace&)> visit) {
  if (Tensor* const* tensor = std::get_if<Tensor*>(&part.value)) {
    visit(**tensor, {part, /*leaf=*/nullptr});
    return;
  }
  for (const auto& [path, value] : std::get<TensorDict*>(part.value)->leaves()) visit(value, {part, &path});
}

}  // namespace graft
