#include "tests/testing/module_snapshot.h"

#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/node.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <string_view>

#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/internal/transform_level.h"
#include "tensordict/internal/transformed.h"

namespace graft::testing {
namespace {

template <typename... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// A number that tells the bytes of the whole storage apart; 0 for a tensor without one.
std::size_t digest_of_values(const at::Tensor& tensor) {
  if (internal::is_transformed(tensor) || !tensor.has_storage()) return 0;
  const c10::Storage& storage = tensor.storage();
  return std::hash<std::string_view>()({static_cast<const char*>(storage.data()), storage.nbytes()});
}

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "empty";
  const at::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  const c10::VariableVersion& version = impl.version_counter();
  return text_of("tensor ", &impl, ", ", tensor.scalar_type(), tensor.sizes(), ", requires_grad=", impl.requires_grad(),
                 ", version ", version.enabled() ? version.current_version() : 0, ", gradient ",
                 impl.grad().defined() ? impl.grad().unsafeGetTensorImpl() : nullptr, ", values #",
                 digest_of_values(tensor));
}

template <typename Registry>
std::string names_in(const Registry& registry) {
  std::string names;
  for (const auto& item : registry.items()) names += item.key() + " ";
  return names;
}

}  // namespace

Snapshot::Snapshot(torch::nn::Module& root) {
  add_thread();
  add_module(root, "");
}

void Snapshot::add_thread() {
  const c10::AutogradState& autograd = c10::AutogradState::get_tls_state();
  const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  const auto add = [&](const char* name, const auto& value) { thread_.emplace_back(name, text_of(value)); };
  add("number of transforms", internal::depth());
  add("grad mode", autograd.get_grad_mode());
  add("forward grad mode", autograd.get_fw_grad_mode());
  add("inference mode", autograd.get_inference_mode());
  add("multithreading of autograd", autograd.get_multithreading_enabled());
  add("forward-mode level", torch::autograd::ForwardADLevel::try_get_by_idx(0).get());
  add("running backward node", torch::autograd::get_current_node().get());
  add("included dispatch keys", keys.included_);
  add("excluded dispatch keys", keys.excluded_);
}

void Snapshot::add_module(torch::nn::Module& module, const std::string& path) {
  if (!seen_.insert(&module).second) return;
  const auto& children = internal::child_registry(module);
  modules_.emplace_back(path + "(children)", names_in(children));
  const auto add_registry = [&](const char* kind, const internal::TensorRegistry& registry) {
    modules_.emplace_back(path + "(" + kind + "s)", names_in(registry));
    for (const auto& item : registry.items()) add_handle(text_of(kind, " ", path, item.key()), item.value());
  };
  add_registry("parameter", internal::parameter_registry(module));
  add_registry("buffer", internal::buffer_registry(module));
  std::size_t ordinal = 0;
  internal::slots_of(module).visit(module, [&](std::string_view member, at::Tensor& handle) {
    add_handle(text_of("member ", path, member, "#", ordinal++), handle);
  });
  for (const auto& item : children.items()) {
    modules_.emplace_back("child " + path + item.key(), text_of("module ", item.value().get()));
    if (item.value() != nullptr) add_module(*item.value(), path + item.key() + ".");
  }
}

void Snapshot::add_handle(const std::string& name, const at::Tensor& tensor) {
  modules_.emplace_back(name, describe(tensor));
  held_.push_back(tensor);
}

std::string Snapshot::changes(const Facts& before, const Facts& now) {
  const auto find = [](const Facts& facts, const std::string& name) {
    return std::find_if(facts.begin(), facts.end(), [&](const auto& fact) { return fact.first == name; });
  };
  std::string lines;
  for (const auto& [name, value] : before) {
    const auto other = find(now, name);
    const std::string new_value = other == now.end() ? "gone" : other->second;
    if (new_value != value) lines += "\n  " + name + ": was " + value + "; is " + new_value;
  }
  for (const auto& [name, value] : now) {
    if (find(before, name) == before.end()) lines += "\n  " + name + ": is new, " + value;
  }
  return lines;
}

std::string Snapshot::changes_to(const Snapshot& now) const {
  return thread_changes_to(now) + changes(modules_, now.modules_);
}

std::string Snapshot::thread_changes_to(const Snapshot& now) const { return changes(thread_, now.thread_); }

}  // namespace graft::testing
