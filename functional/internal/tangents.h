// Tensors that go with the tensors of a tree: tangents with arguments, cotangents with results.
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <vector>

#include "functional/tree.h"

namespace graft::internal {

/// Returns the tensors of `given` in the order of those of `expected`, each with the shape and the dtype of its
/// counterpart.
/// \param call, what, of words for the message: "vjp", "cotangents", "result".
/// \throws c10::ValueError listing every tensor that does not fit, and leaves that are missing or too many.
std::vector<Tensor> tensors_like(std::string_view call, std::string_view what, std::string_view of,
                                 const std::vector<TreePart>& given, const std::vector<TreePart>& expected);

/// Returns the tensors of the parts, in order.
std::vector<Tensor> tensors_of(const std::vector<TreePart>& parts);

/// Replaces the tensors of the parts, in order.
void set_tensors(const std::vector<TreePart>& parts, std::vector<Tensor> tensors);

}  // namespace graft::internal
