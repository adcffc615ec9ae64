// TensorDict: an ordered tree of tensors under dotted paths, all leaves sharing leading batch dims.
//
// A TensorDict is a value that holds tensor handles: copying it shares the storage of every leaf, as copying a tensor
// does, while adding, replacing or erasing a leaf in one copy is not seen by the other.
//
//   TensorDict td({{"obs", torch::zeros({4, 3})}, {"next.obs", torch::zeros({4, 3})}}, /*batch_size=*/{4});
//   td.set("reward", torch::ones({4}));
//   for (const auto& [path, leaf] : td.leaves()) std::cout << path << leaf.sizes() << '\n';
//
// Leaves keep the order in which their paths were first set. A part of the tree, named by a path that leaves lie below,
// exists as long as it has leaves; it may have batch dims beyond the tree's. It is not for values that are no tensors.
// Python: tensordict.TensorDict.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensordict/key_table.h"
#include "tensordict/nested_sizes.h"

namespace graft {

class TensorDict {
 public:
  /// One leaf as iteration shows it.
  struct Leaf {
    const std::string& path;
    const at::Tensor& value;
  };
  class Leaves;

  /// Makes an empty tree without batch dims.
  TensorDict() : TensorDict(std::vector<int64_t>{}) {}

  /// Makes an empty tree whose leaves will have to start with the dims `batch_size`.
  explicit TensorDict(std::vector<int64_t> batch_size);

  /// Makes a tree from pairs of a dotted path and a tensor. The tensors are shared, not copied.
  /// \throws c10::ValueError for a path that is malformed or given twice, and for every leaf, all listed at once,
  ///     that is undefined or does not start with `batch_size`.
  TensorDict(std::initializer_list<std::pair<std::string, at::Tensor>> leaves, std::vector<int64_t> batch_size = {});

  /// The same from a list made at run time.
  explicit TensorDict(const std::vector<std::pair<std::string, at::Tensor>>& leaves,
                      std::vector<int64_t> batch_size = {});

  /// Makes a tree with the keys of `keys` and one value per key, without copying the table.
  /// \param nested the dims that parts have beyond `batch_size`.
  /// \throws c10::ValueError as above, and if `nested` names what is no part, or gives a part within another dims that
  ///     do not start with those of the other.
  TensorDict(std::shared_ptr<const KeyTable> keys, std::vector<at::Tensor> values, std::vector<int64_t> batch_size = {},
             NestedSizes nested = {});

  // --- Reading

  /// Returns the number of leaves.
  std::size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }

  /// Returns the leading dims that every leaf shares.
  const std::vector<int64_t>& batch_size() const { return batch_size_; }
  int64_t batch_dims() const { return static_cast<int64_t>(batch_size_.size()); }

  /// Returns the leading dims that the leaves of the part at `path` share: those of the tree, and what the part has
  /// beyond.
  /// \throws c10::IndexError if nothing lies below `path`.
  std::vector<int64_t> batch_size(std::string_view path) const;

  /// Returns the dims that parts have beyond those of the tree.
  const NestedSizes& nested_sizes() const;

  /// Returns the leaf at `path`. \throws c10::IndexError naming the keys there are, if it is absent.
  const at::Tensor& at(std::string_view path) const;
  const at::Tensor& operator[](std::string_view path) const { return at(path); }

  /// Returns the leaf at `path`, or nullptr.
  const at::Tensor* find(std::string_view path) const;

  /// Says whether `path` is a leaf, or a node with leaves below it.
  bool contains(std::string_view path) const;

  /// Returns the part of the tree below `path`, its paths without that prefix; leaves are shared. It is locked if the
  /// tree is.
  /// \throws c10::IndexError if nothing lies below `path`.
  TensorDict subtree(std::string_view path) const;

  /// Returns the tree of the leaves at `positions`, in that order; they are shared. It is not locked. See also
  /// partition.h, which asks by path.
  TensorDict subset(const std::vector<std::size_t>& positions) const;

  /// Returns a range over the leaves as pairs of path and tensor, in order. The range of a temporary keeps it alive.
  Leaves leaves() const&;
  Leaves leaves() &&;

  /// Returns the tensors alone, in the order of the leaves.
  const std::vector<at::Tensor>& values() const { return values_; }

  /// Returns the table of paths, shared with every tree that was made from this one.
  const std::shared_ptr<const KeyTable>& keys() const { return keys_; }

  /// Applies `function` to every leaf, in order; the result has this tree's keys and batch sizes, and is not locked.
  /// See also map.h.
  /// \throws c10::ValueError listing every new leaf that does not start with its batch size.
  TensorDict map(absl::FunctionRef<at::Tensor(const at::Tensor&)> function) const;

  /// Returns this tree, locked if it is, with other leaves and another batch size: one value per leaf, in order. What
  /// parts have beyond the batch dims stays.
  /// \throws c10::ValueError listing every new leaf that does not start with its batch size.
  TensorDict with_values(std::vector<at::Tensor> values, std::vector<int64_t> batch_size) const;
  TensorDict with_values(std::vector<at::Tensor> values) const { return with_values(std::move(values), batch_size_); }

  // --- Locks. A lock fixes the keys, the handles and the batch size of this tree; the data of its tensors may change.

  bool is_locked() const { return is_locked_; }
  TensorDict& lock_();
  TensorDict& unlock_();

  /// Returns a copy that is not locked; leaves are shared.
  TensorDict unlocked() const&;
  TensorDict unlocked() &&;

  // --- Writing. None of these touches the data of a tensor, and each throws c10::Error if the tree is locked.

  /// Puts `value` at `path`, replacing a leaf or adding one at the end.
  /// \throws c10::ValueError if the path is malformed or runs into a leaf or a subtree, or if `value` is undefined or
  ///     does not start with the batch size. The tree is then as before.
  void set(std::string_view path, at::Tensor value);

  /// Puts `tree` below `path`, in place of what was there; see also update, which merges. If the batch size of `tree`
  /// starts with that of the tree around it and goes on, the part keeps it.
  /// \throws c10::ValueError as above; the tree is then as before.
  void set(std::string_view path, const TensorDict& tree);

  /// Removes the leaf at `path`, or all leaves below it. \throws c10::IndexError if there is none.
  void erase(std::string_view path);

  /// Replaces the batch size. Parts that have one of their own keep it, or follow if the new one is longer.
  /// \throws c10::ValueError listing every leaf that does not start with it.
  void set_batch_size(std::vector<int64_t> batch_size);

  /// Gives the part at `path` a batch size of its own, or takes it back if that is the batch size around it.
  /// \throws c10::IndexError if nothing lies below `path`.
  /// \throws c10::ValueError if it does not start with the batch size around it, if that of a part within does not start
  ///     with it, and listing every leaf of the part that does not.
  void set_batch_size(std::string_view path, const std::vector<int64_t>& batch_size);

 private:
  void check_unlocked(const char* call) const;
  KeyTable& editable_keys();
  void set_nested(NestedSizes sizes);

  std::shared_ptr<const KeyTable> keys_;
  std::vector<at::Tensor> values_;
  std::vector<int64_t> batch_size_;
  std::shared_ptr<const NestedSizes> nested_;  // null if there are none
  bool is_locked_ = false;
};

/// The range that TensorDict::leaves returns; valid as long as a tree that has a name is neither destroyed nor changed.
class TensorDict::Leaves {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Leaf;
    using difference_type = std::ptrdiff_t;
    using pointer = void;
    using reference = Leaf;

    Iterator(const TensorDict* tree, std::size_t position) : tree_(tree), position_(position) {}
    Leaf operator*() const { return {tree_->keys_->path(position_), tree_->values_[position_]}; }
    Iterator& operator++() {
      ++position_;
      return *this;
    }
    friend bool operator==(const Iterator& a, const Iterator& b) { return a.position_ == b.position_; }

   private:
    const TensorDict* tree_;
    std::size_t position_;
  };

  explicit Leaves(const TensorDict* tree) : tree_(tree) {}
  explicit Leaves(TensorDict&& tree)
      : owned_(std::make_shared<const TensorDict>(std::move(tree))), tree_(owned_.get()) {}
  Iterator begin() const { return {tree_, 0}; }
  Iterator end() const { return {tree_, tree_->size()}; }
  std::size_t size() const { return tree_->size(); }

 private:
  std::shared_ptr<const TensorDict> owned_;  // empty unless the tree was a temporary
  const TensorDict* tree_;
};

inline TensorDict::Leaves TensorDict::leaves() const& { return Leaves(this); }
inline TensorDict::Leaves TensorDict::leaves() && { return Leaves(std::move(*this)); }

}  // namespace graft
