#include "functional/internal/leaf_redirect.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/alias.h>
#include <torch/csrc/autograd/function.h>
#include <torch/library.h>

#include <algorithm>

#include "absl/cleanup/cleanup.h"

namespace graft::internal {
namespace {

/// The one mode key above the transforms' own that LibTorch leaves free.
constexpr auto kRedirectKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local const RedirectScope::Map* active_map = nullptr;
/// The old tensors that operators were given, where a scope asks for it.
thread_local absl::flat_hash_set<const at::TensorImpl*>* active_met = nullptr;
/// The backward node that was running when the scope opened. Inside another one this thread runs a backward that was
/// entered within the scope and knows its tensors already.
thread_local const void* active_node = nullptr;

const at::Tensor* find_leaf(const c10::IValue& value) {
  if (!value.isTensor()) return nullptr;
  const auto found = active_map->find(value.toTensor().unsafeGetTensorImpl());
  if (found == active_map->end()) return nullptr;
  if (active_met != nullptr) active_met->insert(found->first);
  return &found->second;
}

bool holds_old_tensor(c10::ArrayRef<c10::IValue> list) {
  return std::any_of(list.begin(), list.end(), [](const c10::IValue& element) { return find_leaf(element); });
}

const at::Tensor& exchanged(const RedirectScope::Map& map, const at::Tensor& tensor) {
  const auto found = map.find(tensor.unsafeGetTensorImpl());
  return found == map.end() ? tensor : found->second;
}

/// Exchanges in one argument: a tensor, or a list of tensors some of which may be absent.
void redirect(c10::IValue& argument) {
  if (const at::Tensor* leaf = find_leaf(argument)) {
    argument = *leaf;
  } else if (argument.isList() && holds_old_tensor(argument.toListRef())) {
    auto list = argument.toList().copy();
    for (std::size_t i = 0; i < list.size(); ++i) {
      const c10::IValue element = list.get(i);
      if (const at::Tensor* element_leaf = find_leaf(element)) list.set(i, *element_leaf);
    }
    argument = std::move(list);
  }
}

void redirect_arguments(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard below(kRedirectKey);
  // A thread may have been given the key, but not the map, of the thread that started it.
  if (active_map != nullptr && torch::autograd::get_current_node().get() == active_node) {
    const std::size_t count = op.schema().arguments().size();
    std::for_each(stack->end() - static_cast<std::ptrdiff_t>(count), stack->end(), redirect);
  }
  op.callBoxed(stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&redirect_arguments>());
}

}  // namespace

RedirectScope::RedirectScope(const std::vector<std::pair<at::Tensor, at::Tensor>>& pairs, bool notes_met)
    : met_(active_met != nullptr || !notes_met ? active_met : &own_met_),
      outer_met_(active_met),
      outer_map_(active_map),
      outer_node_(active_node),
      key_(kRedirectKey) {
  for (const auto& [old_tensor, leaf] : pairs) {
    map_.insert_or_assign(old_tensor.unsafeGetTensorImpl(), outer_map_ ? exchanged(*outer_map_, leaf) : leaf);
  }
  if (outer_map_ != nullptr) {
    Map redirected_on;
    for (const auto& [old_tensor, leaf] : *outer_map_) redirected_on.emplace(old_tensor, exchanged(map_, leaf));
    map_.merge(redirected_on);
  }
  active_map = &map_;
  active_met = met_;
  active_node = torch::autograd::get_current_node().get();
}

RedirectScope::~RedirectScope() {
  active_map = outer_map_;
  active_met = outer_met_;
  active_node = outer_node_;
}

at::Tensor RedirectScope::leaf_for(const at::Tensor& tensor) const {
  const at::Tensor& leaf = exchanged(map_, tensor);
  if (met_ != nullptr && !leaf.is_same(tensor)) met_->insert(tensor.unsafeGetTensorImpl());
  return leaf;
}

at::Tensor RedirectScope::kept(const at::Tensor& tensor) const {
  if (!exchanges(tensor)) return tensor;
  const absl::Cleanup back = [this, node = active_node] {
    active_map = &map_;
    active_node = node;
  };
  active_map = outer_map_;
  active_node = outer_node_;
  return at::alias(tensor);
}

}  // namespace graft::internal
