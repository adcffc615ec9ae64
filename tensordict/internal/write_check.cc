#include "tensordict/internal/write_check.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <ostream>
#include <sstream>
#include <string>

#include "tensordict/internal/transformed.h"

namespace graft::internal {
namespace {

void describe(const std::string& path, const at::Tensor& target, const at::Tensor& value, std::ostream& lines) {
  const auto add = [&]() -> std::ostream& { return lines << "\n  \"" << path << "\": "; };
  if (!at::is_expandable_to(value.sizes(), target.sizes())) {
    add() << "shape " << value.sizes() << ", expected one that broadcasts to " << target.sizes();
  }
  if (value.is_complex() && !target.is_complex()) {
    add() << "dtype " << value.dtype() << ", expected one that converts to " << target.dtype();
  }
  if (is_transformed(target)) return;  // the operators of the transform say what they cannot write
  if (target.requires_grad() && target.is_leaf() && c10::GradMode::is_enabled()) {
    add() << "the leaf there requires grad, write it under torch::NoGradGuard or give it another handle";
  }
  if (at::has_internal_overlap(target) == at::MemOverlap::Yes) {
    add() << "the leaf there is expanded, several of its elements are one in memory";
  }
}

}  // namespace

void check_writable(std::string_view call, const KeyTable& keys, const std::vector<at::Tensor>& targets,
                    const std::vector<at::Tensor>& values) {
  std::ostringstream lines;
  for (std::size_t i = 0; i < targets.size(); ++i) describe(keys.path(i), targets[i], values[i], lines);
  const std::string text = lines.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves cannot be written:", text, "\nNothing is changed.");
}

}  // namespace graft::internal
