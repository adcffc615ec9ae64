// check_dtypes: what functions say when leaves have a dtype that they do not take.
#pragma once

#include <ATen/core/Tensor.h>

#include "absl/functional/function_ref.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

inline bool has_gradients(const at::Tensor& value) { return value.is_floating_point() || value.is_complex(); }

/// Checks that `is_taken` holds for every leaf.
/// \param expected the kind of dtype, for the message, as "a floating or complex one".
/// \throws c10::ValueError listing every leaf for which it does not.
void check_dtypes(const char* call, const TensorDict& tree, absl::FunctionRef<bool(const at::Tensor&)> is_taken,
                  const char* expected);

/// Checks that every leaf has a floating or complex dtype.
/// \throws c10::ValueError as above.
void check_floating_or_complex(const char* call, const TensorDict& tree);

}  // namespace graft::internal
