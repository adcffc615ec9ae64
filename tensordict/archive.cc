#include "tensordict/archive.h"

#include <c10/util/Exception.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tensordict/internal/pickle.h"
#include "tensordict/internal/torch_file.h"

namespace graft {
namespace {

using internal::Pickle;
using internal::PickledValue;
using internal::PickleWriter;
using Kind = internal::PickledValue::Kind;

constexpr const char* kFormat = "graft.TensorDict";
constexpr int64_t kVersion = 2;  // 1 had no batch sizes of parts

/// A value of a pickle, with the checks of what it should be.
class Element {
 public:
  Element(const Pickle& pickle, std::size_t position) : pickle_(pickle), value_(pickle.values[position]) {}

  std::vector<Element> elements() const {
    std::vector<Element> result;
    for (const std::size_t item : expect(Kind::kTuple, "a tuple").items) result.emplace_back(pickle_, item);
    return result;
  }

  std::vector<Element> elements(std::size_t size) const {
    std::vector<Element> result = elements();
    TORCH_CHECK(result.size() == size, "a tuple of ", result.size(), " elements, expected ", size);
    return result;
  }

  std::vector<int64_t> sizes() const {
    std::vector<int64_t> result;
    for (const Element& size : elements()) result.push_back(size.integer());
    return result;
  }

  int64_t integer() const { return expect(Kind::kInteger, "a number").integer; }
  const std::string& text() const { return expect(Kind::kString, "a text").text; }
  const at::Tensor& tensor() const { return expect(Kind::kTensor, "a tensor").tensor; }

 private:
  const PickledValue& expect(Kind kind, const char* what) const {
    TORCH_CHECK(value_.kind == kind, "expected ", what, ", found ", internal::describe(value_));
    return value_;
  }

  const Pickle& pickle_;
  const PickledValue& value_;
};

TensorDict from_pickle(const Pickle& pickle) {
  const std::vector<Element> fields = Element(pickle, pickle.root).elements();
  TORCH_CHECK(fields.size() > 1, "no tuple that starts with a format and its version");
  TORCH_CHECK(fields[0].text() == kFormat, "format \"", fields[0].text(), "\", expected \"", kFormat, "\"");
  const int64_t version = fields[1].integer();
  TORCH_CHECK(version == 1 || version == kVersion, "version ", version, ", known are those up to ", kVersion);
  const std::size_t expected = version == 1 ? 4 : 5;
  TORCH_CHECK(fields.size() == expected, fields.size(), " fields, expected ", expected);
  auto keys = std::make_shared<KeyTable>();
  std::vector<at::Tensor> values;
  for (const Element& leaf : fields[3].elements()) {
    const std::vector<Element> pair = leaf.elements(2);
    keys->insert(pair[0].text());
    values.push_back(pair[1].tensor());
  }
  NestedSizes nested;
  if (version > 1) {
    for (const Element& part : fields[4].elements()) {
      const std::vector<Element> pair = part.elements(2);
      nested.set(pair[0].text(), pair[1].sizes(), {});
    }
  }
  internal::restore_ties(values);
  return TensorDict(std::move(keys), std::move(values), fields[2].sizes(), std::move(nested));
}

}  // namespace

void save(const TensorDict& tree, const std::string& file) {
  const internal::TorchFileWriter writer("save", tree);
  PickleWriter pickle;
  pickle.mark();
  pickle.add(kFormat);
  pickle.add(kVersion);
  pickle.add(tree.batch_size());
  pickle.mark();
  for (std::size_t i = 0; i < tree.size(); ++i) {
    pickle.mark();
    pickle.add(tree.keys()->path(i));
    writer.add_leaf(i, pickle);
    pickle.end_tuple();
  }
  pickle.end_tuple();
  pickle.mark();
  for (const auto& [part, sizes] : tree.nested_sizes().parts()) {
    pickle.mark();
    pickle.add(part);
    pickle.add(sizes);
    pickle.end_tuple();
  }
  pickle.end_tuple();
  pickle.end_tuple();
  writer.write(file, pickle.finish());
}

TensorDict load(const std::string& file) {
  return internal::with_file_named("load", file, [&] { return from_pickle(internal::read_torch_file(file)); });
}

}  // namespace graft
