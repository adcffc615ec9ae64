#include "tensordict/partition.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <ostream>
#include <sstream>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tensordict/internal/part_sizes.h"
#include "tensordict/nested_key.h"

namespace graft {
namespace {

using Positions = std::vector<std::size_t>;

absl::string_view to_absl(std::string_view text) { return {text.data(), text.size()}; }

/// Says for each leaf of a tree which of several lists of paths names it first.
class PathLists {
 public:
  explicit PathLists(const TensorDict& tree) : tree_(tree), lists_(tree.size(), kNone) {}

  void add(const std::vector<std::string>& paths, std::size_t list) {
    for (const std::string& path : paths) {
      if (const auto position = tree_.keys()->find(path)) {
        lists_[*position] = std::min(lists_[*position], list);
      } else if (tree_.keys()->is_subtree(path)) {
        parts_.emplace(path, list);
      } else {
        absent_.push_back(path);
      }
    }
  }

  const std::vector<std::string>& absent() const { return absent_; }

  /// Returns the positions of each list, and last of the leaves that none names.
  std::vector<Positions> positions(std::size_t size) {
    if (!parts_.empty()) add_parts();
    std::vector<Positions> result(size + 1);
    for (std::size_t i = 0; i < lists_.size(); ++i) result[std::min(lists_[i], size)].push_back(i);
    return result;
  }

 private:
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  void add_parts() {
    for (std::size_t i = 0; i < lists_.size(); ++i) {
      std::string_view part = parent_path(tree_.keys()->path(i));
      for (; !part.empty(); part = parent_path(part)) {
        const auto found = parts_.find(to_absl(part));
        if (found != parts_.end()) lists_[i] = std::min(lists_[i], found->second);
      }
    }
  }

  const TensorDict& tree_;
  std::vector<std::size_t> lists_;  // by position
  absl::flat_hash_map<std::string, std::size_t> parts_;
  std::vector<std::string> absent_;
};

void check_none(const char* call, const std::vector<std::string>& absent) {
  std::ostringstream problems;
  for (const std::string& path : absent) problems << "\n  \"" << path << "\": missing";
  TORCH_CHECK_INDEX(absent.empty(), call, ": the tree does not have these paths:", problems.str());
}

/// Returns the positions of each list, and last of the leaves that none names.
std::vector<Positions> positions_of(const char* call, const TensorDict& tree,
                                    absl::Span<const std::vector<std::string>> lists, Absent absent) {
  PathLists table(tree);
  for (std::size_t i = 0; i < lists.size(); ++i) table.add(lists[i], i);
  if (absent == Absent::kError) check_none(call, table.absent());
  return table.positions(lists.size());
}

/// Adds the leaves and parts of `tree` to `result`, or describes why not.
void add_tree(const TensorDict& tree, TensorDict& result, std::ostream& problems) {
  for (const auto& [path, value] : tree.leaves()) {
    try {
      TORCH_CHECK_VALUE(!result.find(path), "another tree has it too");
      result.set(path, value);
    } catch (const c10::ValueError& error) {
      problems << "\n  \"" << path << "\": " << error.what_without_backtrace();
    }
  }
}

/// Returns the leaves under other paths.
template <typename Rename>
TensorDict renamed(const char* call, const TensorDict& tree, Rename rename) {
  TensorDict result(tree.batch_size());
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    try {
      const std::string name = rename(path);
      TORCH_CHECK_VALUE(!result.find(name), "TensorDict: there is a leaf \"", name, "\" already");
      result.set(name, value);
    } catch (const c10::ValueError& error) {
      problems << "\n  \"" << path << "\": " << error.what_without_backtrace();
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves cannot be renamed:", text);
  internal::take_part_sizes(result, tree);
  return result;
}

}  // namespace

TensorDict select(const TensorDict& tree, const std::vector<std::string>& paths, Absent absent) {
  return tree.subset(positions_of("select", tree, {&paths, 1}, absent).front());
}

TensorDict exclude(const TensorDict& tree, const std::vector<std::string>& paths) {
  return tree.subset(positions_of("exclude", tree, {&paths, 1}, Absent::kIgnore).back());
}

std::vector<TensorDict> split_keys(const TensorDict& tree, const std::vector<std::vector<std::string>>& lists,
                                   Absent absent) {
  std::vector<TensorDict> parts;
  for (const Positions& positions : positions_of("split_keys", tree, lists, absent)) {
    parts.push_back(tree.subset(positions));
  }
  return parts;
}

TensorDict filter(const TensorDict& tree, LeafPredicate predicate) { return partition(tree, predicate).first; }

std::pair<TensorDict, TensorDict> partition(const TensorDict& tree, LeafPredicate predicate) {
  Positions yes, no;
  for (std::size_t i = 0; i < tree.size(); ++i) {
    (predicate(tree.keys()->path(i), tree.values()[i]) ? yes : no).push_back(i);
  }
  return {tree.subset(yes), tree.subset(no)};
}

TensorDict merge(const std::vector<TensorDict>& trees) {
  TORCH_CHECK_VALUE(!trees.empty(), "merge: no trees, expected at least one");
  TensorDict result(trees.front().batch_size());
  std::ostringstream problems;
  for (const TensorDict& tree : trees) add_tree(tree, result, problems);
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "merge: these leaves do not fit:", text);
  for (const TensorDict& tree : trees) internal::take_part_sizes(result, tree);
  return result;
}

TensorDict flatten_keys(const TensorDict& tree, const std::string& separator) {
  TORCH_CHECK_VALUE(!separator.empty() && separator.find('.') == std::string::npos, "flatten_keys: separator \"",
                    separator, "\", expected some text without a dot");
  return renamed("flatten_keys", tree, [&](const std::string& path) {
    return absl::StrReplaceAll(path, {{".", separator}});
  });
}

TensorDict unflatten_keys(const TensorDict& tree, const std::string& separator) {
  TORCH_CHECK_VALUE(!separator.empty(), "unflatten_keys: an empty separator");
  return renamed("unflatten_keys", tree, [&](const std::string& path) {
    return absl::StrReplaceAll(path, {{separator, "."}});
  });
}

}  // namespace graft
