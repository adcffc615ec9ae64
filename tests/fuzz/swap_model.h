// What installing leaves in a module has to do, as rules on handles and tensors, written anew from the documentation
// and without Graft's own code.
//
//   const ModuleView view(module, net.cells());
//   const Prediction expected = predict(view, tree, Mechanism::kGuard, options);
//   // either expected.refusal, or expected.handles, .contents and .redirects
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "functional/to_module.h"
#include "tests/fuzz/random_net.h"

namespace graft::testing {

/// How a leaf can come to an entry.
enum class Way {
  kMembers,   ///< members are known that hold its tensor
  kRegistry,  ///< the entry is all there is
  kUnknown,   ///< it is not known who reads its tensor
  kDetached,  ///< its member holds a tensor that is registered nowhere
};

/// One entry of a registry.
struct Entry {
  torch::nn::Module* module;
  std::string name;
  bool is_buffer;
  Tensor* handle;
  std::vector<const Cell*> cells;  ///< that hold its tensor and go with it
  Way way = Way::kUnknown;
};

/// The entries of a module and of all below it, as they are now.
struct ModuleView {
  ModuleView(torch::nn::Module& module, const std::vector<Cell>& cells);

  /// Is there a handle that nobody knows of what is otherwise known?
  bool has_hidden_handles(const std::vector<Cell>& cells) const;

  /// Returns the entry of a dotted name, or nullptr.
  const Entry* find(const std::string& path) const;

  std::vector<Entry> entries;
  std::vector<std::pair<std::string, std::size_t>> names;  ///< in order, of shared modules all

 private:
  void add(torch::nn::Module& module, const std::string& path);
  void give_cells_to_entries(const std::vector<Cell>& cells);

  std::map<const torch::nn::Module*, std::size_t> first_entries_;
  std::vector<torch::nn::Module*> modules_;
};

enum class Mechanism { kGuard, kForGood, kCall };
enum class Refusal { kNone, kIndex, kValue };

enum class Install {
  kLeaf,           ///< the leaf itself
  kAliasWithGrad,  ///< an alias of it that requires grad
  kEither,         ///< itself or an alias of it, because operators may be given something else for the leaf itself
};

/// What a handle shall hold.
struct NewHandle {
  Tensor* handle;
  Tensor leaf;
  Install how;
};

/// A tensor and the leaf whose values it gets, or which it is exchanged for.
struct NewTensor {
  Tensor old;
  Tensor leaf;
};

struct Prediction {
  Refusal refusal = Refusal::kNone;
  std::vector<std::string> named;  ///< what the message of a refusal lists
  std::vector<NewHandle> handles;
  std::vector<const Entry*> written;  ///< every entry that is put back in the end
  std::vector<NewTensor> contents;
  std::vector<NewTensor> redirects;  ///< for handles that are not set
};

/// The leaves of `tree` are those that arrive, after any load.
Prediction predict(const ModuleView& view, const TensorDict& tree, Mechanism mechanism, const ToModuleOptions& options);

}  // namespace graft::testing
