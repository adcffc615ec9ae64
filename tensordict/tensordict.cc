#include "tensordict/tensordict.h"

#include <c10/util/Exception.h>

#include <sstream>

#include "tensordict/nested_key.h"

namespace graft {
namespace {

bool starts_with(at::IntArrayRef sizes, at::IntArrayRef prefix) {
  return sizes.size() >= prefix.size() && sizes.slice(0, prefix.size()).equals(prefix);
}

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

void check_values(const KeyTable& keys, const std::vector<at::Tensor>& values, at::IntArrayRef batch_size) {
  TORCH_CHECK_VALUE(keys.size() == values.size(), "TensorDict: ", keys.size(), " keys, but ", values.size(), " values");
  std::ostringstream problems;
  for (std::size_t i = 0; i < values.size(); ++i) check_leaf(keys.path(i), values[i], batch_size, problems);
  throw_if_any(problems);
}

void check_one(std::string_view path, const at::Tensor& value, at::IntArrayRef batch_size) {
  if (value.defined() && starts_with(value.sizes(), batch_size)) return;
  std::ostringstream problems;
  check_leaf(std::string(path), value, batch_size, problems);
  throw_if_any(problems);
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
  check_values(*keys, values_, batch_size_);
  keys_ = std::move(keys);
}

TensorDict::TensorDict(std::shared_ptr<const KeyTable> keys, std::vector<at::Tensor> values,
                       std::vector<int64_t> batch_size)
    : keys_(std::move(keys)), values_(std::move(values)), batch_size_(std::move(batch_size)) {
  check_values(*keys_, values_, batch_size_);
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
  TORCH_CHECK_INDEX(keys_->is_subtree(path), "TensorDict: no subtree \"", path,
                    "\" (there are the leaves: ", list_paths(*keys_), ")");
  TensorDict result(batch_size_);
  for (const auto& [full_path, value] : leaves()) {
    if (is_below(full_path, path)) result.set(std::string_view(full_path).substr(path.size() + 1), value);
  }
  return result;
}

TensorDict TensorDict::map(absl::FunctionRef<at::Tensor(const at::Tensor&)> function) const {
  std::vector<at::Tensor> results;
  results.reserve(size());
  for (const at::Tensor& value : values_) results.push_back(function(value));
  return TensorDict(keys_, std::move(results), batch_size_);
}

void TensorDict::set(std::string_view path, at::Tensor value) {
  check_one(path, value, batch_size_);
  if (const auto position = keys_->find(path)) {
    values_[*position] = std::move(value);
    return;
  }
  values_.reserve(values_.size() + 1);
  editable_keys().insert(path);
  values_.push_back(std::move(value));
}

void TensorDict::set(std::string_view path, const TensorDict& tree) {
  check_path(path);
  TensorDict changed = *this;
  for (const auto& [below, value] : tree.leaves()) changed.set(join_path(path, below), value);
  *this = std::move(changed);
}

void TensorDict::erase(std::string_view path) {
  TORCH_CHECK_INDEX(contains(path), "TensorDict: nothing to erase at \"", path, "\" (there are: ", list_paths(*keys_),
                    ")");
  auto keys = std::make_shared<KeyTable>();
  std::vector<at::Tensor> values;
  for (const auto& [leaf_path, value] : leaves()) {
    if (leaf_path == path || is_below(leaf_path, path)) continue;
    keys->insert(leaf_path);
    values.push_back(value);
  }
  keys_ = std::move(keys);
  values_ = std::move(values);
}

void TensorDict::set_batch_size(std::vector<int64_t> batch_size) {
  check_values(*keys_, values_, batch_size);
  batch_size_ = std::move(batch_size);
}

void TensorDict::set_values(std::vector<at::Tensor> values, std::vector<int64_t> batch_size) {
  check_values(*keys_, values, batch_size);
  values_ = std::move(values);
  batch_size_ = std::move(batch_size);
}

KeyTable& TensorDict::editable_keys() {
  // A table that nobody else holds may be edited; tables are always created non-const.
  if (keys_.use_count() > 1) keys_ = std::make_shared<KeyTable>(*keys_);
  return const_cast<KeyTable&>(*keys_);
}

}  // namespace graft
