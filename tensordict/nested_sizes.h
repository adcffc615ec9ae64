// Batch dims that parts of a tree have beyond the tree's own.
//
// A tree of batch size [4] may hold a part of batch size [4, 3]: every leaf of the part starts with [4, 3]. Kept for it
// is [3] alone, so that what is done to the batch dims of the whole tree, an index or a stack, leaves this table as it
// is.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace graft {

/// Dims by the dotted path of the part. The dims of a part within a part start with those of the outer one.
class NestedSizes {
 public:
  using Parts = std::map<std::string, std::vector<int64_t>, std::less<>>;

  bool empty() const { return parts_.empty(); }
  const Parts& parts() const { return parts_; }

  /// Returns the dims of the innermost part that `path` is, or lies in; none if there is no such part.
  const std::vector<int64_t>& at(std::string_view path) const;

  /// Returns what lies below `path`, as a tree made of that part holds it.
  NestedSizes below(std::string_view path) const;

  /// Gives the part at `path` the dims `sizes`, and those within it what `inner` says beyond that.
  void set(std::string_view path, const std::vector<int64_t>& sizes, const NestedSizes& inner);

  /// Moves dims between the tree and its parts: the tree's batch size was `before` and is `after`.
  void follow(const std::vector<int64_t>& before, const std::vector<int64_t>& after);

  /// Drops every part for which `is_part` is false.
  void keep(const std::function<bool(const std::string&)>& is_part);

  friend bool operator==(const NestedSizes& a, const NestedSizes& b) { return a.parts_ == b.parts_; }

 private:
  /// Adds a part, after those around it, if it has more dims than those.
  void insert(const std::string& path, std::vector<int64_t> sizes);

  Parts parts_;
};

}  // namespace graft
