#include "tests/fuzz/swap_scope.h"

#include <torch/torch.h>

#include <algorithm>
#include <string>
#include <utility>

namespace graft::testing {

SwapScope::SwapScope(RandomSwap drawn, RandomNet& net, Changes& changes)
    : swap(std::move(drawn)),
      swap_dest({{"other", torch::ones({1})}}),
      options(swap.options),
      arrived(swap.tree),
      before(net),
      snapshot(net.root()),
      layouts(changes.layouts()) {
  if (swap.has_swap_dest) options.swap_dest = &swap_dest;
  if (options.use_state_dict) load_leaves();
  expected = predict(swap.view, arrived, swap.mechanism, options);
  if (options.use_state_dict) {
    for (const auto& [path, index] : swap.view.names) {
      const Tensor& held = *swap.view.entries[index].handle;
      if (held.defined()) changes.note_move(held);
    }
    refuse_empty_names();
  }
  for (const Tensor& leaf : arrived.values()) values.emplace(leaf.unsafeGetTensorImpl(), copy_of(leaf));
  for (const NewTensor& content : expected.contents) {
    changes.note_new_values(content.old);
    contents.insert(content.old.unsafeGetTensorImpl());
  }
  for (const Entry* const entry : expected.written) {
    written.insert(id_of(*entry));
    for (const Cell* const cell : entry->cells) written.insert(id_of(net, *cell));
    for (const Cell& cell : net.cells()) {  // of a class that reads its registry
      if (cell.handle() == entry->handle) written.insert(id_of(net, cell));
    }
  }
}

/// A load copies, and casts to what the entry holds.
void SwapScope::load_leaves() {
  arrived = TensorDict();
  for (const auto& [path, leaf] : swap.tree.leaves()) {
    const Entry* const entry = swap.view.find(path);
    const bool is_known = entry != nullptr && entry->handle->defined();
    arrived.set(path, copy_of(leaf).to(is_known ? entry->handle->scalar_type() : leaf.scalar_type()));
  }
}

/// A load knows no names that hold nothing.
void SwapScope::refuse_empty_names() {
  const bool contradicts =
      options.inplace || options.non_blocking || (options.swap_dest != nullptr && !options.return_swap);
  if (contradicts) return;
  for (const auto& [path, index] : swap.view.names) {
    if (swap.view.entries[index].handle->defined() || swap.tree.find(path) == nullptr) continue;
    if (expected.refusal != Refusal::kIndex) expected.named.clear();
    expected.refusal = Refusal::kIndex;
    expected.named.push_back(path);
  }
}

bool SwapScope::is_mixed() const {
  return std::any_of(expected.handles.begin(), expected.handles.end(), [this](const NewHandle& replaced) {
    return replaced.handle->defined() && contents.contains(replaced.handle->unsafeGetTensorImpl());
  });
}

bool SwapScope::is_history_needed(const RandomNet& net) const {
  if (!swap.view.has_hidden_handles(net.cells())) return false;
  if (swap.mechanism != Mechanism::kCall) return true;
  const auto has_other_type = [&](const auto& item) {
    const Entry* const entry = swap.view.find(item.path);
    return entry != nullptr && entry->handle->defined() && entry->handle->scalar_type() != item.value.scalar_type();
  };
  const auto leaves = swap.tree.leaves();
  return std::any_of(leaves.begin(), leaves.end(), has_other_type);
}

}  // namespace graft::testing
