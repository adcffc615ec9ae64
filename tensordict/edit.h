// A scope in which a tree has another form: what is done to that form is done to the tree.
//
//   edit(rollout, flattened(), [&](TensorDict& flat) {              // [time, env] -> [time * env]
//     flat.set("advantage", advantages(flat));
//   });                                                             // "advantage" is there, of batch size [time, env]
//
// The form shares the leaves' memory, so data that `body` writes is in the tree at once. The leaves that it sets,
// replaces or erases reach the tree when it returns, brought back to the batch size of the tree; all others keep their
// handles. If it throws, the tree has the leaves that it had. A locked tree has locked forms.
//
// Python: `with td.view(-1) as flat:` and its like, where what the scope erases stays.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "tensordict/tensordict.h"

namespace graft {

/// How a tree gets a form, and how an edited form is brought back. Make one of your own from any two functions that
/// undo each other, and keep the number and the order of leaves; `back` is also given the tree as it was.
struct Form {
  std::function<TensorDict(const TensorDict& tree)> there;
  std::function<TensorDict(const TensorDict& edited, const TensorDict& tree)> back;
};

/// Calls `body` with the form of `tree`.
/// \throws what `form.there`, `body` and `form.back` throw; the tree has its leaves then.
void edit(TensorDict& tree, const Form& form, absl::FunctionRef<void(TensorDict& edited)> body);

// Forms with other batch dims, by the functions of shape.h. Leaves are views, and it is an error if strides do not
// allow them.

Form viewed(at::IntArrayRef sizes);                           ///< `view`
Form flattened(int64_t start_dim = 0, int64_t end_dim = -1);  ///< `flatten`, but views alone
Form unflattened(int64_t dim, at::IntArrayRef sizes);         ///< `unflatten`
Form squeezed(int64_t dim);                                   ///< `squeeze`
Form unsqueezed(int64_t dim);                                 ///< `unsqueeze`
Form permuted(at::IntArrayRef dims);                          ///< `permute`
Form transposed(int64_t dim0, int64_t dim1);                  ///< `transpose`

// Forms with other keys, by the functions of partition.h. \throws c10::ValueError, when used, listing every path that
// would not come back as it was, as one that has the separator, or for the second a dot, in it already.

Form with_flat_keys(const std::string& separator);    ///< `flatten_keys`
Form with_nested_keys(const std::string& separator);  ///< `unflatten_keys`

}  // namespace graft
