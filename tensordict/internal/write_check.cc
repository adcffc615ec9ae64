#include "tensordict/internal/write_check.h"

#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

#include <stdexcept>

#include "absl/container/flat_hash_set.h"
#include "tensordict/internal/transformed.h"

namespace graft::internal {
namespace {

/// Says why autograd refuses to have `target` written to, or nothing.
const char* autograd_refusal(const at::Tensor& target, bool has_gradients) {
  if (target.is_inference() && !c10::InferenceMode::is_enabled()) return "made in inference mode";
  using torch::autograd::can_mutate_inplace_result;
  switch (torch::autograd::can_mutate_inplace(target, target.requires_grad() || has_gradients)) {
    case can_mutate_inplace_result::success:
      return nullptr;
    case can_mutate_inplace_result::is_leaf:
      return "requires grad";
    case can_mutate_inplace_result::view_of_leaf:
      return "a view of a tensor that requires grad";
    case can_mutate_inplace_result::non_default_backward_view:
      return "a view that gradients cannot be led through, one of several by unbind or made without grad mode";
  }
  return nullptr;
}

}  // namespace

std::ostream& WriteProblems::add(std::string_view path) { return lines_ << "\n  \"" << path << "\": "; }

Source source_of(const at::Tensor& value) { return {value.requires_grad(), is_transformed(value)}; }

void WriteProblems::check_target(std::string_view path, const at::Tensor& target, Source source) {
  if (is_transformed(target)) return;  // the operators of the transform say what they cannot write
  if (source.is_transformed) {
    add(path)
        << "the leaf there comes from outside of the transform that the value is in; write to a copy of it that is "
           "made inside";
    return;
  }
  if (const char* refusal = autograd_refusal(target, source.has_gradients)) {
    add(path) << "the leaf there is guarded by autograd: " << refusal
              << "; write under torch::NoGradGuard, or give it another handle";
  }
  const bool has_strides = target.layout() == at::kStrided && !target.is_nested();
  if (has_strides && at::has_internal_overlap(target) == at::MemOverlap::Yes) {
    add(path) << "the leaf there is expanded, several of its elements are one in memory";
  }
}

void WriteProblems::check_shape(std::string_view path, at::IntArrayRef shape, at::IntArrayRef sizes) {
  if (at::is_expandable_to(shape, sizes)) return;
  add(path) << "shape " << shape << ", expected one that broadcasts to " << sizes;
}

void WriteProblems::check_number(std::string_view path, const at::Scalar& number, const at::Tensor& target) {
  try {
    at::scalar_tensor(number, target.scalar_type());
  } catch (const std::runtime_error&) {
    add(path) << "the number " << number << ", expected one that converts to " << target.dtype();
  }
}

void WriteProblems::check_value(std::string_view path, const at::Tensor& value, at::IntArrayRef sizes,
                                const at::Tensor& target) {
  if (!value.defined()) {
    add(path) << "an undefined tensor";
    return;
  }
  check_shape(path, value.sizes(), sizes);
  if (value.is_complex() && !target.is_complex()) {
    add(path) << "dtype " << value.dtype() << ", expected one that converts to " << target.dtype();
  }
}

void WriteProblems::throw_if_any(std::string_view call) const {
  const std::string text = lines_.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves cannot be written:", text, "\nNothing is changed.");
}

void check_writable(std::string_view call, const KeyTable& keys, const std::vector<at::Tensor>& targets,
                    const std::vector<at::Tensor>& values) {
  WriteProblems problems;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    problems.check_value(keys.path(i), values[i], targets[i].sizes(), targets[i]);
    problems.check_target(keys.path(i), targets[i], values[i].defined() ? source_of(values[i]) : Source{});
  }
  problems.throw_if_any(call);
}

void copy_values(const std::vector<at::Tensor>& targets, const std::vector<at::Tensor>& values) {
  absl::flat_hash_set<const void*> written;
  for (const at::Tensor& target : targets) {
    if (target.has_storage()) written.insert(target.storage().unsafeGetStorageImpl());
  }
  std::vector<at::Tensor> sources = values;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const bool is_written = sources[i].has_storage() && written.contains(sources[i].storage().unsafeGetStorageImpl());
    if (is_written && !sources[i].is_same(targets[i])) sources[i] = sources[i].clone();
  }
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i].copy_(sources[i]);
}

void write_values(std::string_view call, const KeyTable& keys, const std::vector<at::Tensor>& targets,
                  const std::vector<at::Tensor>& values) {
  check_writable(call, keys, targets, values);
  copy_values(targets, values);
}

}  // namespace graft::internal
