// The part of Python's pickle format that torch.save uses for tensors within tuples, lists and dicts.
//
// LibTorch's own reader takes pickles that a program wrote; this one takes any bytes. What it does not know, it hands
// out as kOther or refuses, and it calls nothing that a pickle names.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace graft::internal {

/// One value; those within it are positions in the Pickle.
struct PickledValue {
  enum class Kind { kNone, kBool, kInteger, kFloat, kString, kTuple, kList, kDict, kTensor, kStorage, kOther };

  Kind kind = Kind::kNone;
  int64_t integer = 0;                  // of kBool and kInteger
  std::string text = {};                // of kString; of kOther, what it is
  std::vector<std::size_t> items = {};  // of a kDict, keys and values in turns
  at::Tensor tensor = {};
};

/// Values that may contain one another; a list of them, so that no depth of nesting costs depth of calls.
struct Pickle {
  std::vector<PickledValue> values;
  std::size_t root = 0;
};

/// Returns the storage with this key, which lies on `device`.
using StorageReader = absl::FunctionRef<c10::Storage(const std::string& key, const std::string& device)>;

/// Reads a pickle. Tensors are checked against their storages.
/// \throws c10::Error that says what is wrong.
Pickle read_pickle(std::string_view bytes, StorageReader read_storage);

/// Says what a value is, for messages.
std::string describe(const PickledValue& value);

/// Writes a pickle, value by value:
///
///   PickleWriter writer;
///   writer.mark();
///   writer.add("a"), writer.add(1);
///   writer.end_tuple();
///   writer.finish();   // ("a", 1)
class PickleWriter {
 public:
  PickleWriter();

  void mark();
  void end_tuple();
  /// After a mark, keys and values in turns.
  void end_dict();
  void begin_dict();

  void add(std::string_view text);
  void add(int64_t number);
  void add_bool(bool value);
  void add(at::IntArrayRef sizes);

  /// Adds a tensor that is a view of the storage `key`, as torch.save does.
  void add(const at::Tensor& tensor, const std::string& key);

  /// Returns the bytes.
  std::string finish();

 private:
  void add_global(std::string_view module, std::string_view name);
  void add_code(char code) { bytes_ += code; }

  std::string bytes_;
};

/// Says whether add can write tensors of this dtype.
bool is_picklable(at::ScalarType dtype);

}  // namespace graft::internal
