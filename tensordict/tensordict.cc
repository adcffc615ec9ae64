#include "tensordict/tensordict.h"

#include <c10/util/Exception.h>

#include <sstream>

#include "tensordict/internal/sizes.h"
#include "tensordict/nested_key.h"

namespace graft {
namespace {

using internal::joined;
using internal::starts_with;

/// Appends a line to `problems` if `value` cannot be a leaf of a tree with this batch size.
void check_leaf(const std::string& path, const at::Tensor& value, at::IntArrayRef batch_size,
                std::ostringstream& problems) {
  if (!value.defined()) {
    problems << "\n  \"" << path << "\": an undefined tensor";
  } else if (!starts_with(value.sizes(), batch_size)) {
    problems << "\n  \"" << path << "\": shape " << value.sizes() << ", expected to start with " << batch_size;
  }
}

void throw_if_any(const std::ostringstream& problems) {
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "TensorDict: these leaves do not fit:", text);
}

void check_values(const KeyTable& keys, const std::vector<at::Tensor>& values, at::IntArrayRef batch_size,
                  const NestedSizes& nested) {
  TORCH_CHECK_VALUE(keys.size() == values.size(), "TensorDict: ", keys.size(), " keys, but ", values.size(), " values");
  std::ostringstream problems;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const at::IntArrayRef beyond = nested.empty() ? at::IntArrayRef() : nested.at(keys.path(i));
    if (beyond.empty()) {
      check_leaf(keys.path(i), values[i], batch_size, problems);
    } else {
      check_leaf(keys.path(i), values[i], joined(batch_size, beyond), problems);
    }
  }
  throw_if_any(problems);
}

/// Checks the dims of parts against the keys and against those of the parts around.
void check_nested(const KeyTable& keys, const NestedSizes& nested) {
  for (const auto& [part, sizes] : nested.parts()) {
    TORCH_CHECK_VALUE(keys.is_subtree(part), "TensorDict: batch dims for \"", part, "\", below which there is no leaf");
    const std::vector<int64_t>& around = nested.at(parent_path(part));
    TORCH_CHECK_VALUE(starts_with(sizes, around), "TensorDict: the part \"", part, "\" has batch dims ",
                      at::IntArrayRef(sizes), " beyond the tree, expected to start with those of the part around it, ",
                      at::IntArrayRef(around));
  }
}

void check_one(std::string_view path, const at::Tensor& value, at::IntArrayRef batch_size) {
  if (value.defined() && starts_with(value.sizes(), batch_size)) return;
  std::ostringstream problems;
  check_leaf(std::string(path), value, batch_size, problems);
  throw_if_any(problems);
}

std::vector<std::size_t> positions_where(const KeyTable& keys, absl::FunctionRef<bool(const std::string&)> stays) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (stays(keys.path(i))) positions.push_back(i);
  }
  return positions;
}

/// Lists the first paths of a table, for messages.
std::string list_paths(const KeyTable& keys) {
  constexpr std::size_t kShown = 20;
  std::ostringstream text;
  for (std::size_t i = 0; i < keys.size() && i < kShown; ++i) text << (i == 0 ? "" : ", ") << keys.path(i);
  if (keys.size() > kShown) text << ", and " << keys.size() - kShown << " more";
  return keys.size() == 0 ? "nothing" : text.str();
}

}  // namespace

TensorDict::TensorDict(std::vector<int64_t> batch_size) : batch_size_(std::move(batch_size)) {
  static const auto empty_table = std::make_shared<const KeyTable>();
  keys_ = empty_table;
}

TensorDict::TensorDict(std::initializer_list<std::pair<std::string, at::Tensor>> leaves,
                       std::vector<int64_t> batch_size)
    : TensorDict(std::vector<std::pair<std::string, at::Tensor>>(leaves), std::move(batch_size)) {}

TensorDict::TensorDict(const std::vector<std::pair<std::string, at::Tensor>>& leaves, std::vector<int64_t> batch_size)
    : batch_size_(std::move(batch_size)) {
  auto keys = std::make_shared<KeyTable>();
  values_.reserve(leaves.size());
  for (const auto& [path, value] : leaves) {
    keys->insert(path);
    values_.push_back(value);
  }
  check_values(*keys, values_, batch_size_, {});
  keys_ = std::move(keys);
}

TensorDict::TensorDict(std::shared_ptr<const KeyTable> keys, std::vector<at::Tensor> values,
                       std::vector<int64_t> batch_size, NestedSizes nested)
    : keys_(std::move(keys)), values_(std::move(values)), batch_size_(std::move(batch_size)) {
  check_nested(*keys_, nested);
  check_values(*keys_, values_, batch_size_, nested);
  set_nested(std::move(nested));
}

std::vector<int64_t> TensorDict::batch_size(std::string_view path) const {
  TORCH_CHECK_INDEX(keys_->is_subtree(path), "TensorDict: no subtree \"", path,
                    "\" (there are the leaves: ", list_paths(*keys_), ")");
  return joined(batch_size_, nested_sizes().at(path));
}

const NestedSizes& TensorDict::nested_sizes() const {
  static const auto* const none = new NestedSizes;
  return nested_ ? *nested_ : *none;
}

const at::Tensor& TensorDict::at(std::string_view path) const {
  const at::Tensor* leaf = find(path);
  TORCH_CHECK_INDEX(leaf != nullptr, "TensorDict: no leaf \"", path, "\"",
                    keys_->is_subtree(path) ? "; it is a subtree, ask for it with subtree()" : "",
                    " (there are: ", list_paths(*keys_), ")");
  return *leaf;
}

const at::Tensor* TensorDict::find(std::string_view path) const {
  const auto position = keys_->find(path);
  return position ? &values_[*position] : nullptr;
}

bool TensorDict::contains(std::string_view path) const { return keys_->find(path) || keys_->is_subtree(path); }

TensorDict TensorDict::subtree(std::string_view path) const {
  TensorDict part(batch_size(path));
  const auto positions = positions_where(*keys_, [&](const std::string& leaf) { return is_below(leaf, path); });
  part.values_.reserve(positions.size());
  for (const std::size_t position : positions) part.values_.push_back(values_[position]);
  part.keys_ = keys_->subset(positions, /*prefix=*/path.size() + 1);
  if (nested_) part.set_nested(nested_->below(path));
  part.is_locked_ = is_locked_;
  return part;
}

TensorDict TensorDict::map(absl::FunctionRef<at::Tensor(const at::Tensor&)> function) const {
  std::vector<at::Tensor> results;
  results.reserve(size());
  for (const at::Tensor& value : values_) results.push_back(function(value));
  return with_values(std::move(results)).unlocked();
}

TensorDict TensorDict::subset(const std::vector<std::size_t>& positions) const {
  TensorDict part(batch_size_);
  part.values_.reserve(positions.size());
  for (const std::size_t position : positions) part.values_.push_back(values_[position]);
  part.keys_ = keys_->subset(positions);
  if (nested_) {
    NestedSizes nested = *nested_;
    nested.keep([&](const std::string& path) { return part.keys_->is_subtree(path); });
    part.set_nested(std::move(nested));
  }
  return part;
}

TensorDict TensorDict::with_values(std::vector<at::Tensor> values, std::vector<int64_t> batch_size) const {
  check_values(*keys_, values, batch_size, nested_sizes());
  TensorDict result(std::move(batch_size));
  result.keys_ = keys_;
  result.values_ = std::move(values);
  result.nested_ = nested_;
  result.is_locked_ = is_locked_;
  return result;
}

TensorDict& TensorDict::lock_() {
  is_locked_ = true;
  return *this;
}

TensorDict& TensorDict::unlock_() {
  is_locked_ = false;
  return *this;
}

TensorDict TensorDict::unlocked() const& {
  TensorDict copy = *this;
  copy.unlock_();
  return copy;
}

TensorDict TensorDict::unlocked() && { return std::move(unlock_()); }

void TensorDict::set(std::string_view path, at::Tensor value) {
  check_unlocked("set");
  if (nested_) {
    check_one(path, value, joined(batch_size_, nested_->at(path)));
  } else {
    check_one(path, value, batch_size_);
  }
  if (const auto position = keys_->find(path)) {
    values_[*position] = std::move(value);
    return;
  }
  if (values_.size() == values_.capacity()) values_.reserve(2 * values_.size() + 1);  // so that push_back cannot fail
  editable_keys().insert(path);
  values_.push_back(std::move(value));
}

void TensorDict::set(std::string_view path, const TensorDict& tree) {
  check_unlocked("set");
  check_path(path);
  TensorDict changed = *this;
  if (contains(path)) {
    TORCH_CHECK_VALUE(!find(path), "TensorDict: \"", path, "\" is a leaf, erase it before a tree is put there");
    const auto stays = [&](const std::string& leaf) {
      return !is_below(leaf, path) || tree.find(std::string_view(leaf).substr(path.size() + 1));
    };
    changed = subset(positions_where(*keys_, stays));
  }
  const std::vector<int64_t> around = joined(batch_size_, nested_sizes().at(parent_path(path)));
  NestedSizes nested = nested_sizes();  // with those of parts around that have no leaf for the moment
  nested.keep([&](const std::string& part) {
    const bool stays = changed.keys_->is_subtree(part) || (!tree.empty() && is_below(path, part));
    return stays && part != path && !is_below(part, path);
  });
  if (!tree.empty() && starts_with(tree.batch_size(), around)) {
    const auto beyond = at::IntArrayRef(tree.batch_size()).slice(batch_size_.size());
    nested.set(path, beyond.vec(), tree.nested_sizes());
  } else {
    for (const auto& [part, beyond] : tree.nested_sizes().parts()) {
      const std::vector<int64_t> sizes = tree.batch_size(part);
      if (!starts_with(sizes, around)) continue;
      nested.set(join_path(path, part), at::IntArrayRef(sizes).slice(batch_size_.size()).vec(), {});
    }
  }
  std::ostringstream problems;
  for (const auto& [below, value] : tree.leaves()) {
    const std::string leaf = join_path(path, below);
    check_leaf(leaf, value, joined(batch_size_, nested.at(leaf)), problems);
  }
  throw_if_any(problems);
  changed.set_nested(std::move(nested));
  for (const auto& [below, value] : tree.leaves()) changed.set(join_path(path, below), value);
  *this = std::move(changed);
}

void TensorDict::erase(std::string_view path) {
  check_unlocked("erase");
  TORCH_CHECK_INDEX(contains(path), "TensorDict: nothing to erase at \"", path, "\" (there are: ", list_paths(*keys_),
                    ")");
  const auto stays = [&](const std::string& leaf) { return leaf != path && !is_below(leaf, path); };
  *this = subset(positions_where(*keys_, stays));
}

void TensorDict::set_batch_size(std::vector<int64_t> batch_size) {
  check_unlocked("set_batch_size");
  NestedSizes nested = nested_sizes();
  nested.follow(batch_size_, batch_size);
  check_values(*keys_, values_, batch_size, nested);
  batch_size_ = std::move(batch_size);
  set_nested(std::move(nested));
}

void TensorDict::set_batch_size(std::string_view path, const std::vector<int64_t>& batch_size) {
  check_unlocked("set_batch_size");
  this->batch_size(path);  // throws if there is no such part
  const std::vector<int64_t> around = joined(batch_size_, nested_sizes().at(parent_path(path)));
  TORCH_CHECK_VALUE(starts_with(batch_size, around), "TensorDict: batch size ", at::IntArrayRef(batch_size), " for \"",
                    path, "\", expected to start with that of the tree around it, ", at::IntArrayRef(around));
  NestedSizes nested = nested_sizes();
  nested.set(path, at::IntArrayRef(batch_size).slice(batch_size_.size()).vec(), {});
  check_nested(*keys_, nested);
  check_values(*keys_, values_, batch_size_, nested);
  set_nested(std::move(nested));
}

void TensorDict::check_unlocked(const char* call) const {
  TORCH_CHECK(!is_locked_, "TensorDict::", call, ": the tree is locked; unlock_() it, or change a copy: unlocked()");
}

KeyTable& TensorDict::editable_keys() {
  // A table that nobody else holds may be edited; tables are always created non-const.
  if (keys_.use_count() > 1) keys_ = std::make_shared<KeyTable>(*keys_);
  return const_cast<KeyTable&>(*keys_);
}

void TensorDict::set_nested(NestedSizes sizes) {
  nested_ = sizes.empty() ? nullptr : std::make_shared<const NestedSizes>(std::move(sizes));
}

}  // namespace graft
