#include "tensordict/internal/dtypes.h"

#include <c10/util/Exception.h>

#include <sstream>
#include <string>

namespace graft::internal {

void check_dtypes(const char* call, const TensorDict& tree, absl::FunctionRef<bool(const at::Tensor&)> is_taken,
                  const char* expected) {
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    if (!is_taken(value)) problems << "\n  \"" << path << "\": dtype " << value.dtype() << ", expected " << expected;
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves have a dtype that it does not take:", text);
}

void check_floating_or_complex(const char* call, const TensorDict& tree) {
  check_dtypes(call, tree, has_gradients, "a floating or complex one");
}

}  // namespace graft::internal
