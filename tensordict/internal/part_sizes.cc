#include "tensordict/internal/part_sizes.h"

#include <cstdint>
#include <vector>

#include "tensordict/internal/sizes.h"

namespace graft::internal {

void take_part_sizes(TensorDict& tree, const TensorDict& source,
                     absl::FunctionRef<bool(const std::string& part)> is_wanted) {
  for (const auto& [part, beyond] : source.nested_sizes().parts()) {
    if (!tree.keys()->is_subtree(part) || !is_wanted(part)) continue;
    const std::vector<int64_t> wanted = source.batch_size(part), now = tree.batch_size(part);
    if (wanted.size() > now.size() && starts_with(wanted, now)) tree.set_batch_size(part, wanted);
  }
}

}  // namespace graft::internal
