// Parts of a tree by their paths: some leaves of it, the others, or one tree of several.
//
//   TensorDict head = select(params, {"head", "encoder.bias"});      // a leaf, or all leaves of a part
//   TensorDict rest = exclude(params, {"head"});
//   auto [decayed, plain] = partition(params, [](const std::string& path, const at::Tensor&) { return
//   !path.ends_with("bias"); }); TensorDict both = merge({decayed, plain});
//
// Leaves are shared and keep the order that they had. Parts keep the batch dims that they have beyond the tree's. No
// result is locked.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensordict/tensordict.h"

namespace graft {

using LeafPredicate = absl::FunctionRef<bool(const std::string& path, const at::Tensor&)>;

/// What becomes of a path that the tree does not have.
enum class Absent {
  kError,   ///< c10::IndexError listing every such path.
  kIgnore,  ///< Nothing.
};

/// Returns the leaves that `paths` name, each a leaf or a part.
TensorDict select(const TensorDict& tree, const std::vector<std::string>& paths, Absent absent = Absent::kError);

/// Returns the other leaves. Paths that the tree does not have are no error, as in Python.
TensorDict exclude(const TensorDict& tree, const std::vector<std::string>& paths);

/// Returns a tree for each list of paths, and last the leaves that no list names. A leaf that several lists name is
/// in the first one of those.
std::vector<TensorDict> split_keys(const TensorDict& tree, const std::vector<std::vector<std::string>>& lists,
                                   Absent absent = Absent::kError);

/// Returns the leaves for which `predicate` is true.
TensorDict filter(const TensorDict& tree, LeafPredicate predicate);

/// Returns the leaves for which `predicate` is true, and the others.
std::pair<TensorDict, TensorDict> partition(const TensorDict& tree, LeafPredicate predicate);

/// Returns one tree with the leaves of all, of the batch size of the first.
/// \throws c10::ValueError if there is no tree, and listing every path that two of them have, or that is a leaf in one
///     and a part in another, and every leaf that does not start with the batch size.
TensorDict merge(const std::vector<TensorDict>& trees);

/// Returns the leaves under single names: the names of a path joined by `separator`, "a/b" for "a.b". There are no parts
/// then, and no batch dims of theirs.
/// \throws c10::ValueError listing the names that two leaves would have, and if `separator` is empty or has a dot.
TensorDict flatten_keys(const TensorDict& tree, const std::string& separator);

/// Returns the leaves under the paths that their names make if `separator` is read as a dot: "a.b" for "a/b".
/// \throws c10::ValueError listing the paths that two leaves would have, that are empty somewhere, or both leaf and
///     part, and if `separator` is empty.
/// See also flatten_keys, its inverse. Python's names may have dots, here a dot always separates two names.
TensorDict unflatten_keys(const TensorDict& tree, const std::string& separator);

}  // namespace graft
