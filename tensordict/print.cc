#include "tensordict/print.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "tensordict/internal/outline.h"
#include "tensordict/summary.h"

namespace graft {
namespace {

using internal::OutlineLine;

constexpr std::size_t kLongestColumn = 60;
constexpr std::size_t kMostLines = 1000;

void print_leaf(const at::Tensor& leaf, std::ostream& stream) {
  stream << c10::toString(leaf.scalar_type()) << ' ' << leaf.sizes() << "  "
         << format_bytes(leaf.numel() * static_cast<int64_t>(leaf.element_size()));
  std::string separator = "  ";
  const auto note = [&](const auto& what) {
    stream << separator << what;
    separator = ", ";
  };
  if (!leaf.is_cpu()) note(leaf.device());
  if (leaf.layout() != at::kStrided) note(leaf.layout());
  if (leaf.requires_grad()) note("requires grad");
}

std::size_t indent(const OutlineLine& line) { return 2 * static_cast<std::size_t>(line.depth + 1); }

std::size_t width_of_names(const std::vector<OutlineLine>& lines) {
  std::size_t width = 0;
  for (const OutlineLine& line : lines) {
    width = std::max(width, std::min(indent(line) + line.name.size(), kLongestColumn));
  }
  return width;
}

}  // namespace

std::ostream& operator<<(std::ostream& stream, const TensorDict& tree) {
  stream << "TensorDict: " << tree.size() << (tree.size() == 1 ? " leaf" : " leaves") << ", batch size "
         << at::IntArrayRef(tree.batch_size()) << ", " << format_bytes(nbytes(tree))
         << (tree.is_locked() ? ", locked" : "");
  const std::vector<OutlineLine> lines = internal::outline(tree);
  const std::size_t width = width_of_names(lines);
  for (std::size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) {
    const OutlineLine& line = lines[i];
    stream << '\n' << std::string(indent(line), ' ') << line.name;
    const bool has_own_dims = tree.nested_sizes().parts().count(line.path) > 0;
    if (!line.leaf && !has_own_dims) continue;
    const std::size_t used = indent(line) + line.name.size();
    stream << std::string(used < width ? width - used + 2 : 2, ' ');
    if (line.leaf) {
      print_leaf(tree.values()[*line.leaf], stream);
    } else {
      stream << "batch size " << at::IntArrayRef(tree.batch_size(line.path));
    }
  }
  if (lines.size() > kMostLines) stream << "\n  and " << lines.size() - kMostLines << " more lines";
  return stream;
}

}  // namespace graft
