#include "tests/fuzz/swap_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

namespace graft::testing {

void SwapChecker::check_installed(const SwapScope& scope) const {
  for (const auto& [handle, leaf, how] : scope.expected.handles) {
    if (scope.options.use_state_dict) {
      EXPECT_TRUE(are_equal(*handle, leaf));
    } else if (how == Install::kLeaf || (how == Install::kEither && handle->is_same(leaf))) {
      EXPECT_TRUE(handle->is_same(leaf));
    } else {
      EXPECT_FALSE(handle->is_same(leaf));
      EXPECT_TRUE(handle->is_alias_of(leaf) && handle->sizes() == leaf.sizes() && handle->strides() == leaf.strides());
      EXPECT_EQ(handle->storage_offset(), leaf.storage_offset());
    }
    EXPECT_EQ(handle->requires_grad(), how == Install::kAliasWithGrad || leaf.requires_grad());
  }
  for (const Entry* const entry : scope.expected.written) {
    for (const Cell* const cell : entry->cells) EXPECT_TRUE(cell->handle()->is_same(*entry->handle)) << entry->name;
  }
  for (const auto& [target, leaf] : scope.expected.contents) {
    EXPECT_TRUE(are_equal(target, scope.values.at(leaf.unsafeGetTensorImpl())));
    const bool is_shared = !scope.options.inplace && !scope.options.use_state_dict;
    EXPECT_TRUE(!is_shared || target.is_alias_of(leaf));
  }
  for (const auto& [id, fact] : NetState(net_).handles) {
    const Fact& before = scope.before.handles.at(id);
    const bool stays = !scope.written.contains(id) || scope.contents.contains(before.tensor.unsafeGetTensorImpl());
    EXPECT_TRUE(!stays || fact.tensor.is_same(before.tensor)) << std::get<2>(id);
  }
}

void SwapChecker::check_old(const SwapScope& scope, const TensorDict& old) const {
  for (const auto& [path, leaf] : scope.swap.tree.leaves()) {
    const Fact& before = scope.before.handles.at(id_of(*scope.swap.view.find(path)));
    const Tensor* const given = old.find(path);
    ASSERT_EQ(given != nullptr, before.tensor.defined()) << path;
    if (given == nullptr) continue;
    const bool is_copy = scope.contents.contains(before.tensor.unsafeGetTensorImpl());
    EXPECT_TRUE(is_copy ? are_equal(*given, before.values) : given->is_same(before.tensor)) << path;
  }
}

void SwapChecker::check_current(const SwapScope& scope, const TensorDict& current) const {
  EXPECT_EQ(current.size(), scope.swap.tree.size());
  for (const auto& [path, leaf] : current.leaves()) {
    const Entry& entry = *scope.swap.view.find(path);
    EXPECT_TRUE(leaf.is_same(*entry.handle)) << path;
  }
}

/// The members that shall hold what their entries hold when the scope has ended, each with its entry.
std::map<HandleId, HandleId> SwapChecker::resets_of(const SwapScope& scope) const {
  std::map<HandleId, HandleId> resets;
  if (scope.swap.mechanism != Mechanism::kCall) return resets;
  for (const Entry& entry : scope.swap.view.entries) {
    for (const Cell* const cell : entry.cells) resets.emplace(id_of(net_, *cell), id_of(entry));
  }
  return resets;
}

void SwapChecker::check_after(const SwapScope& scope, const NetState& inside, const NetState& end) const {
  const NetState now(net_);
  const std::map<HandleId, HandleId> resets = resets_of(scope);
  const bool is_layout_same = changes_.layouts() == scope.layouts;  // else nothing may be reset
  bool is_quiet = changes_.is_quiet();
  for (const auto& [id, before] : scope.before.handles) {
    const bool is_written = scope.written.contains(id);
    const auto at_end = end.handles.find(id);
    const auto at_start = inside.handles.find(id);
    const auto found = now.handles.find(id);
    if (!is_written && at_end == end.handles.end()) continue;
    ASSERT_TRUE(found != now.handles.end()) << std::get<2>(id) << " is gone";
    const Fact& fact = found->second;
    const auto reset = resets.find(id);
    const bool may_reset = !is_written && reset != resets.end();
    const bool is_reset = may_reset && (is_layout_same || !fact.tensor.is_same(at_end->second.tensor));
    const Fact& right = is_written ? before : is_reset ? now.handles.at(reset->second) : at_end->second;
    ASSERT_TRUE(fact.tensor.is_same(right.tensor)) << std::get<2>(id) << " holds another tensor";
    const bool same_version = !changes_.has_moved(fact.tensor);
    const bool was_written =
        changes_.is_written(fact.tensor) && !scope.contents.contains(fact.tensor.unsafeGetTensorImpl());
    const Fact* const known = scope.before.find(fact.tensor);
    const bool is_right = was_written || (known != nullptr && fact.is_like(*known, same_version)) ||
                          (!is_written && fact.is_like(right, same_version));
    ASSERT_TRUE(is_right) << std::get<2>(id) << " has changed from " << before << " to " << fact;
    is_quiet &= is_written || (at_start != inside.handles.end() && at_start->second.tensor.is_same(fact.tensor));
  }
  for (const auto& [registry, names] : scope.before.names) {
    std::vector<std::string> expected = names;
    for (const std::string& name : end.names.at(registry)) {
      if (std::find(names.begin(), names.end(), name) == names.end()) expected.push_back(name);
    }
    ASSERT_EQ(now.names.at(registry), expected);
    is_quiet &= names == expected;
  }
  const Snapshot after(net_.root());
  EXPECT_EQ(scope.snapshot.thread_changes_to(after), "");
  EXPECT_EQ(is_quiet ? scope.snapshot.changes_to(after) : "", "");
}

}  // namespace graft::testing
