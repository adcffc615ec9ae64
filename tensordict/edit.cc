#include "tensordict/edit.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_replace.h"
#include "tensordict/internal/part_sizes.h"
#include "tensordict/partition.h"
#include "tensordict/shape.h"

namespace graft {
namespace {

bool same_handles(const TensorDict& left, const TensorDict& right) {
  return left.keys() == right.keys() && left.batch_size() == right.batch_size() &&
         left.nested_sizes() == right.nested_sizes() &&
         std::equal(left.values().begin(), left.values().end(), right.values().begin(),
                    [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
}

/// Returns `back`, which was made of `edited`, with the handles of `tree` for what is still as `before`, which was made
/// of `tree`.
TensorDict with_old_handles(const TensorDict& back, const TensorDict& edited, const TensorDict& before,
                            const TensorDict& tree) {
  TORCH_CHECK_VALUE(before.size() == tree.size() && back.size() == edited.size(), "edit: a form of ", before.size(),
                    " leaves for ", tree.size(), ", and ", back.size(), " back for ", edited.size(),
                    "; forms keep the leaves and their order");
  std::vector<at::Tensor> values = back.values();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto position = before.keys()->find(edited.keys()->path(i));
    if (position && edited.values()[i].is_same(before.values()[*position])) values[i] = tree.values()[*position];
  }
  return back.with_values(std::move(values)).unlocked();
}

using Change = std::function<TensorDict(const TensorDict&)>;

/// A form that shows the batch dims in another shape.
Form reshaped(Change there) {
  return {std::move(there),
          [](const TensorDict& edited, const TensorDict& tree) { return reshape(edited, tree.batch_size()); }};
}

/// Checks that `text` written as `other_text`, and back, gives each path.
void check_that_paths_come_back(const char* call, const TensorDict& tree, const std::string& text,
                                const std::string& other_text) {
  std::string problems;
  for (const auto& [path, value] : tree.leaves()) {
    const std::string there = absl::StrReplaceAll(path, {{text, other_text}});
    const std::string back = absl::StrReplaceAll(there, {{other_text, text}});
    if (back != path) problems += c10::str("\n  \"", path, "\": it would be \"", back, '"');
  }
  TORCH_CHECK_VALUE(problems.empty(), call, ": these paths would not come back as they are:", problems);
}

}  // namespace

void edit(TensorDict& tree, const Form& form, absl::FunctionRef<void(TensorDict& edited)> body) {
  TensorDict before = form.there(tree);
  if (tree.is_locked()) before.lock_();
  TensorDict edited = before;
  body(edited);
  if (same_handles(edited, before)) return;
  TORCH_CHECK(!tree.is_locked(), "edit: the tree is locked, and the edited form has other leaves");
  tree = with_old_handles(form.back(edited, tree), edited, before, tree);
}

Form viewed(at::IntArrayRef sizes) {
  return reshaped([sizes = sizes.vec()](const TensorDict& tree) { return view(tree, sizes); });
}

Form flattened(int64_t start_dim, int64_t end_dim) {
  return reshaped([=](const TensorDict& tree) {
    const TensorDict without_leaves(tree.batch_size());
    return view(tree, flatten(without_leaves, start_dim, end_dim).batch_size());
  });
}

Form unflattened(int64_t dim, at::IntArrayRef sizes) {
  return reshaped([dim, sizes = sizes.vec()](const TensorDict& tree) { return unflatten(tree, dim, sizes); });
}

Form squeezed(int64_t dim) {
  return reshaped([dim](const TensorDict& tree) { return squeeze(tree, dim); });
}

Form unsqueezed(int64_t dim) {
  return reshaped([dim](const TensorDict& tree) { return unsqueeze(tree, dim); });
}

Form permuted(at::IntArrayRef dims) {
  const auto back = [dims = dims.vec()](const TensorDict& edited, const TensorDict&) {
    const auto count = static_cast<int64_t>(dims.size());
    std::vector<int64_t> places(dims.size());
    for (int64_t i = 0; i < count; ++i) places[dims[i] < 0 ? dims[i] + count : dims[i]] = i;
    return permute(edited, places);
  };
  return {[dims = dims.vec()](const TensorDict& tree) { return permute(tree, dims); }, back};
}

Form transposed(int64_t dim0, int64_t dim1) {
  return {[=](const TensorDict& tree) { return transpose(tree, dim0, dim1); },
          [=](const TensorDict& edited, const TensorDict&) { return transpose(edited, dim0, dim1); }};
}

Form with_flat_keys(const std::string& separator) {
  return {[=](const TensorDict& tree) {
            check_that_paths_come_back("with_flat_keys", tree, ".", separator);
            return flatten_keys(tree, separator);
          },
          [=](const TensorDict& edited, const TensorDict& tree) {
            TensorDict back = unflatten_keys(edited, separator);
            internal::take_part_sizes(back, tree);
            return back;
          }};
}

Form with_nested_keys(const std::string& separator) {
  return {[=](const TensorDict& tree) {
            check_that_paths_come_back("with_nested_keys", tree, separator, ".");
            return unflatten_keys(tree, separator);
          },
          [=](const TensorDict& edited, const TensorDict&) { return flatten_keys(edited, separator); }};
}

}  // namespace graft
