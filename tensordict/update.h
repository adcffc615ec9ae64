// Writing one tree into another, and single leaves as a dictionary's.
//
//   update(td, other);                      // handles: leaves of `other` replace those of `td`, or are added
//   update_(td, other);                     // data: copied into the leaves that `td` has
//   at::Tensor reward = pop(td, "reward");
//
// Functions that end in "_" change the data of tensors, which every tree that shares them sees; they work on a locked
// tree too. The others change handles, and throw c10::Error if the tree is locked. After an error nothing is changed.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft {

struct UpdateOptions {
  bool inplace = false;                               ///< Leaves that are there get the data, not the handle.
  bool clone = false;                                 ///< New handles are copies; clones keep ties and gradients.
  std::optional<std::vector<std::string>> keys = {};  ///< Only these leaves and parts of `other`; all if not given.
};

/// Puts the leaves of `other` into `tree`, whose other leaves stay; parts are merged.
/// \throws c10::ValueError if the batch sizes differ, and listing every leaf that does not fit: a leaf where there is
///     a part or the other way round, another leading shape, data that cannot be written.
/// \throws c10::IndexError listing every one of `options.keys` that `other` does not have.
void update(TensorDict& tree, const TensorDict& other, const UpdateOptions& options = {});

/// Copies the data of every leaf of `other` into the leaf of its path; values broadcast to the shapes there, and are
/// converted to their dtypes and devices.
/// \throws c10::IndexError listing every path that `tree` does not have.
/// \throws c10::ValueError listing every leaf whose data cannot be written: another shape or kind of dtype, a leaf
///     that requires grad while grad mode is on, memory that an expanded leaf holds several times.
void update_(const TensorDict& tree, const TensorDict& other);

/// Copies the data of one tensor into the leaf at `path`. \throws as update_.
void set_(const TensorDict& tree, std::string_view path, const at::Tensor& value);

/// Returns a copy of `tree`, its tensors shared, in which leaves of `other` take the places of those of their paths.
/// \throws c10::IndexError listing every path that `tree` does not have.
/// \throws c10::ValueError as update.
TensorDict replace(const TensorDict& tree, const TensorDict& other);

/// Removes the leaf at `path` and returns it. \throws c10::IndexError if there is none.
at::Tensor pop(TensorDict& tree, std::string_view path);

/// The same, but returns `otherwise` if there is no such leaf.
at::Tensor pop(TensorDict& tree, std::string_view path, at::Tensor otherwise);

/// Returns the leaf at `path`; if there is none, puts `otherwise` there first. \throws as TensorDict::set.
at::Tensor setdefault(TensorDict& tree, std::string_view path, at::Tensor otherwise);

/// Moves the leaf or part at `from` to the end of the tree, under the path `to`.
/// \throws c10::IndexError if nothing is at `from`.
/// \throws c10::ValueError if something else is at `to`, or around it.
void rename_key(TensorDict& tree, std::string_view from, std::string_view to);

/// Removes all leaves; the batch size stays.
void clear(TensorDict& tree);

}  // namespace graft
