// NetState: every handle of a net and what its tensor was like, to compare with later.
//
//   const NetState before(net);
//   ...
//   const Fact& fact = before.handles.at(id_of(net, cell));
//   EXPECT_TRUE(cell.handle()->is_same(fact.tensor));
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <iosfwd>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "functional/internal/module_registry.h"
#include "tests/fuzz/random_net.h"
#include "tests/fuzz/swap_model.h"

namespace graft::testing {

/// Sees tensors as they are, even within a functional_call that exchanges them.
struct Unredirected {
  c10::impl::ExcludeDispatchKeyGuard exclude{c10::DispatchKey::TESTING_ONLY_GenericMode};
};

/// Returns a copy of its values, or no tensor for none.
Tensor copy_of(const Tensor& tensor);

/// Have they one dtype, one shape and the same values?
bool are_equal(const Tensor& left, const Tensor& right);

/// A tensor and what it was like.
struct Fact {
  explicit Fact(const Tensor& held);

  /// The version counts if both have `same_version`.
  bool is_like(const Fact& other, bool same_version) const;

  Tensor tensor, values;
  bool requires_grad = false;
  std::vector<int64_t> strides;
  int64_t version = 0;
  const void* gradient = nullptr;
};

std::ostream& operator<<(std::ostream& out, const Fact& fact);

/// A registry by its module and kind.
using RegistryId = std::pair<torch::nn::Module*, bool>;
/// An entry by its registry and name; a cell by its number.
using HandleId = std::tuple<torch::nn::Module*, bool, std::string>;

internal::TensorRegistry& registry_of(const RegistryId& id);

HandleId id_of(const Entry& entry);
HandleId id_of(const RandomNet& net, const Cell& cell);

/// Every handle of a net, and the order of its registries.
struct NetState {
  explicit NetState(RandomNet& net);

  /// Returns what a tensor was like, or nullptr.
  const Fact* find(const Tensor& tensor) const;

  std::map<RegistryId, std::vector<std::string>> names;
  std::map<HandleId, Fact> handles;
};

}  // namespace graft::testing
