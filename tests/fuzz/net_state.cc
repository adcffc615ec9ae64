#include "tests/fuzz/net_state.h"

#include <torch/torch.h>

#include <ostream>

namespace graft::testing {

Tensor copy_of(const Tensor& tensor) {
  const Unredirected guard;
  const torch::NoGradGuard no_grad;
  return tensor.defined() ? tensor.detach().clone() : Tensor();
}

bool are_equal(const Tensor& left, const Tensor& right) {
  const Unredirected guard;
  return left.scalar_type() == right.scalar_type() && left.sizes() == right.sizes() && left.equal(right);
}

Fact::Fact(const Tensor& held) : tensor(held), values(copy_of(held)) {
  if (!held.defined()) return;
  requires_grad = held.requires_grad();
  strides = held.strides().vec();
  version = held._version();
  gradient = held.unsafeGetTensorImpl()->grad().unsafeGetTensorImpl();
}

bool Fact::is_like(const Fact& other, bool same_version) const {
  if (!tensor.defined() || !other.tensor.defined()) return tensor.defined() == other.tensor.defined();
  return requires_grad == other.requires_grad && strides == other.strides && gradient == other.gradient &&
         are_equal(values, other.values) && (!same_version || version == other.version);
}

std::ostream& operator<<(std::ostream& out, const Fact& fact) {
  return out << fact.values << ", strides " << fact.strides << ", requires_grad " << fact.requires_grad << ", version "
             << fact.version;
}

internal::TensorRegistry& registry_of(const RegistryId& id) {
  return id.second ? internal::buffer_registry(*id.first) : internal::parameter_registry(*id.first);
}

HandleId id_of(const Entry& entry) { return {entry.module, entry.is_buffer, entry.name}; }

HandleId id_of(const RandomNet& net, const Cell& cell) {
  return {nullptr, false, std::to_string(&cell - net.cells().data())};
}

NetState::NetState(RandomNet& net) {
  for (torch::nn::Module* const module : net.modules()) {
    for (const bool buffers : {false, true}) {
      std::vector<std::string>& order = names[{module, buffers}];
      order.clear();  // a shared module comes twice
      for (const auto& item : registry_of({module, buffers}).items()) {
        order.push_back(item.key());
        handles.insert_or_assign({module, buffers, item.key()}, Fact(item.value()));
      }
    }
  }
  for (const Cell& cell : net.cells()) {
    if (const Tensor* const handle = cell.handle()) handles.insert_or_assign(id_of(net, cell), Fact(*handle));
  }
}

const Fact* NetState::find(const Tensor& tensor) const {
  for (const auto& [id, fact] : handles) {
    if (fact.tensor.is_same(tensor)) return &fact;
  }
  return nullptr;
}

}  // namespace graft::testing
