// The ordered set of dotted paths that names the leaves of a TensorDict.
//
// Trees made from one another (by map, arithmetic, stack, a gradient) share one table, so "same keys, same order" is
// a pointer comparison and a path look-up can be done once for many trees. A table that is shared is never changed:
// a TensorDict copies its table before it edits a shared one.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

/// Paths in insertion order, with their positions. A path is a leaf or the prefix of leaves, never both.
class KeyTable {
 public:
  KeyTable();
  KeyTable(const KeyTable& other);
  KeyTable& operator=(const KeyTable&) = delete;
  ~KeyTable();

  std::size_t size() const { return paths_.size(); }
  const std::string& path(std::size_t position) const { return paths_[position]; }

  /// Returns the position of the leaf at `path`, or nothing.
  std::optional<std::size_t> find(std::string_view path) const;

  /// Says whether some leaf lies below `path`.
  bool is_subtree(std::string_view path) const;

  /// Appends a leaf and returns its position.
  /// \throws c10::ValueError if the path is not well formed, is present already, is a subtree, or lies below a leaf.
  std::size_t insert(std::string_view path);

  /// Returns a table of some of the paths, in the order of `positions`, each without its first `prefix` characters.
  std::shared_ptr<const KeyTable> subset(const std::vector<std::size_t>& positions, std::size_t prefix = 0) const;

 private:
  struct Index;

  /// Appends a path that cannot clash with the others.
  std::size_t append(std::string_view path);

  std::deque<std::string> paths_;  // a deque, because the index refers to the strings
  std::unique_ptr<Index> index_;
};

/// Says whether both tables hold the same paths, in whatever order.
bool same_paths(const KeyTable& left, const KeyTable& right);

}  // namespace graft
