#include "tensordict/print.h"

#include <c10/core/ScalarType.h>

namespace graft {
namespace {

void print_leaf(std::ostream& stream, const TensorDict::Leaf& leaf) {
  stream << "\n  " << leaf.path << ": " << c10::toString(leaf.value.scalar_type()) << ' ' << leaf.value.sizes();
  if (!leaf.value.is_cpu()) stream << " on " << leaf.value.device();
  if (leaf.value.requires_grad()) stream << ", requires grad";
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const TensorDict& tree) {
  stream << "TensorDict with " << tree.size() << (tree.size() == 1 ? " leaf" : " leaves") << ", batch size "
         << at::IntArrayRef(tree.batch_size());
  for (const auto& leaf : tree.leaves()) print_leaf(stream, leaf);
  return stream;
}

}  // namespace graft
