#include "tensordict/internal/outline.h"

#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"

namespace graft::internal {
namespace {

/// A part or leaf, as a node of a real tree.
struct Node {
  std::string_view path;
  std::vector<std::size_t> children = {};
  std::optional<std::size_t> leaf = std::nullopt;
};

/// Returns all nodes; the first is the tree itself. Paths are those of `tree`.
std::vector<Node> make_nodes(const TensorDict& tree) {
  std::vector<Node> nodes = {{.path = ""}};
  absl::flat_hash_map<absl::string_view, std::size_t> parts;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    const std::string_view path = tree.keys()->path(i);
    std::size_t node = 0;
    for (std::size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.', dot + 1)) {
      const auto [part, is_new] = parts.emplace(absl::string_view(path.data(), dot), nodes.size());
      if (is_new) {
        nodes[node].children.push_back(nodes.size());
        nodes.push_back({.path = path.substr(0, dot)});
      }
      node = part->second;
    }
    nodes[node].children.push_back(nodes.size());
    nodes.push_back({.path = path, .leaf = i});
  }
  return nodes;
}

/// What is still to be shown: a node, and where the part of its path begins that has not been.
struct Pending {
  std::size_t node;
  std::size_t name_at;
  int64_t depth;
  std::optional<std::size_t> around;
};

}  // namespace

std::vector<OutlineLine> outline(const TensorDict& tree) {
  const std::vector<Node> nodes = make_nodes(tree);
  const NestedSizes::Parts& with_own_dims = tree.nested_sizes().parts();
  std::vector<OutlineLine> lines;
  std::vector<Pending> pending;
  const auto add_children = [&](const Node& node, std::size_t name_at, int64_t depth,
                                std::optional<std::size_t> around) {
    for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
      pending.push_back({*child, name_at, depth, around});
    }
  };
  add_children(nodes.front(), 0, 0, std::nullopt);
  while (!pending.empty()) {
    const Pending next = pending.back();
    pending.pop_back();
    const Node& node = nodes[next.node];
    const bool shares_line = node.children.size() == 1 && with_own_dims.find(node.path) == with_own_dims.end();
    if (shares_line) {
      add_children(node, next.name_at, next.depth, next.around);
      continue;
    }
    const std::size_t line = lines.size();
    lines.push_back(
        {std::string(node.path.substr(next.name_at)), std::string(node.path), next.depth, next.around, node.leaf});
    add_children(node, node.path.size() + 1, next.depth + 1, line);
  }
  return lines;
}

}  // namespace graft::internal
