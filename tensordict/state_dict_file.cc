#include "tensordict/state_dict_file.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <memory>
#include <sstream>
#include <utility>
#include <vector>

#include "tensordict/internal/pickle.h"
#include "tensordict/internal/torch_file.h"

namespace graft {
namespace {

using internal::Pickle;
using internal::PickledValue;
using Kind = internal::PickledValue::Kind;

TensorDict from_dict(const Pickle& pickle) {
  const PickledValue& root = pickle.values[pickle.root];
  TORCH_CHECK(root.kind == Kind::kDict, "expected a dict of tensors, found ", internal::describe(root));
  std::ostringstream problems;
  auto keys = std::make_shared<KeyTable>();
  std::vector<at::Tensor> values;
  for (std::size_t i = 0; i < root.items.size(); i += 2) {
    const PickledValue& key = pickle.values[root.items[i]];
    const PickledValue& value = pickle.values[root.items[i + 1]];
    if (key.kind != Kind::kString) {
      problems << "\n  a key is " << internal::describe(key) << ", expected text";
    } else if (value.kind != Kind::kTensor) {
      problems << "\n  \"" << key.text << "\": " << internal::describe(value) << ", expected a tensor";
    } else {
      keys->insert(key.text);
      values.push_back(value.tensor);
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK(text.empty(), "these entries are no tensors with names:", text);
  internal::restore_ties(values);
  return TensorDict(std::move(keys), std::move(values));
}

}  // namespace

void save_state_dict(const TensorDict& tree, const std::string& file) {
  const internal::TorchFileWriter writer("save_state_dict", tree);
  internal::PickleWriter pickle;
  pickle.begin_dict();
  for (std::size_t i = 0; i < tree.size(); ++i) {
    pickle.add(tree.keys()->path(i));
    writer.add_leaf(i, pickle);
  }
  pickle.end_dict();
  writer.write(file, pickle.finish());
}

TensorDict load_state_dict(const std::string& file) {
  return internal::with_file_named("load_state_dict", file, [&] { return from_dict(internal::read_torch_file(file)); });
}

}  // namespace graft
