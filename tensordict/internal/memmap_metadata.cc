#include "tensordict/internal/memmap_metadata.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

namespace graft::internal {
namespace {

using nlohmann::json;

constexpr const char* kClass = "tensordict:TensorDict";
constexpr const char* kType = "<class 'tensordict._td.TensorDict'>";
constexpr int64_t kFormatVersion = 1;
constexpr int kMaxNesting = 8;

// Python's tensordict knows these, and quantized ones.
constexpr std::array<std::pair<at::ScalarType, const char*>, 16> kDtypes = {{
    {at::kBFloat16, "torch.bfloat16"},
    {at::kBool, "torch.bool"},
    {at::kComplexDouble, "torch.complex128"},
    {at::kComplexHalf, "torch.complex32"},
    {at::kComplexFloat, "torch.complex64"},
    {at::kHalf, "torch.float16"},
    {at::kFloat, "torch.float32"},
    {at::kDouble, "torch.float64"},
    {at::kShort, "torch.int16"},
    {at::kInt, "torch.int32"},
    {at::kLong, "torch.int64"},
    {at::kChar, "torch.int8"},
    {at::kByte, "torch.uint8"},
    {at::kUInt16, "torch.uint16"},
    {at::kUInt32, "torch.uint32"},
    {at::kUInt64, "torch.uint64"},
}};

/// What is wrong with a file, said by `check`.
class Checker {
 public:
  Checker(std::string_view call, const std::string& file) : call_(call), file_(file) {}

  template <typename... Parts>
  void check(bool holds, const Parts&... parts) const {
    TORCH_CHECK(holds, call_, ": \"", file_, "\": ", parts...);
  }

 private:
  std::string_view call_;
  const std::string& file_;
};

/// A JSON object with the order of its keys, which nlohmann::json does not keep.
struct OrderedObject {
  json value;
  std::vector<std::string> keys;
};

OrderedObject parse(const std::string& text, const Checker& checker) {
  OrderedObject object;
  std::size_t inner_keys = 0;
  const auto note = [&](int depth, json::parse_event_t event, json& parsed) {
    checker.check(depth <= kMaxNesting, "too many brackets within brackets");
    if (event != json::parse_event_t::key) return true;
    if (depth == 1) object.keys.push_back(parsed.get<std::string>());
    inner_keys += depth == 2;
    return true;
  };
  try {
    object.value = json::parse(text, note);
  } catch (const json::exception& error) {
    checker.check(false, error.what());
  }
  checker.check(object.value.is_object(), "no JSON object");
  std::size_t different = 0;
  for (const json& entry : object.value) different += entry.is_object() ? entry.size() : 0;
  checker.check(object.keys.size() == object.value.size() && inner_keys == different, "a key comes twice");
  return object;
}

std::vector<int64_t> read_sizes(const json& entry, const std::string& key, const Checker& checker) {
  const auto found = entry.find("shape");
  checker.check(found != entry.end() && found->is_array(), key, "no list \"shape\"");
  std::vector<int64_t> sizes;
  for (const json& size : *found) {
    const bool fits = size.is_number_unsigned() && size.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
    checker.check(fits, key, "\"shape\" has the size ", size);
    sizes.push_back(size.get<int64_t>());
  }
  return sizes;
}

std::string read_string(const json& entry, const char* field, const std::string& key, const Checker& checker) {
  const auto found = entry.find(field);
  checker.check(found != entry.end() && found->is_string(), key, "no text \"", field, "\"");
  return found->get<std::string>();
}

/// Says whether a tensor of these sizes can be spoken of: strides and bytes fit into 63 bits.
bool is_possible(const std::vector<int64_t>& shape, std::size_t item) {
  int64_t bytes = static_cast<int64_t>(item);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return false;
  }
  return true;
}

at::ScalarType read_dtype(const json& entry, const std::string& key, const Checker& checker) {
  const std::string name = read_string(entry, "dtype", key, checker);
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& dtype) { return name == dtype.second; });
  checker.check(found != kDtypes.end(), key, "\"dtype\" is \"", name, "\", which a leaf cannot have");
  return found->first;
}

MemmapEntry read_entry(const std::string& name, const json& entry, const Checker& checker) {
  const std::string key = "entry \"" + name + "\": ";
  checker.check(entry.is_object(), key, "neither a leaf nor a part of the tree");
  MemmapEntry result{.key = name};
  result.is_part = entry.contains("type");
  if (result.is_part) return result;
  const auto nested = entry.find("is_nested");
  checker.check(nested == entry.end() || *nested == json(false), key,
                "\"is_nested\" is set; no leaf can be such a tensor");
  result.dtype = read_dtype(entry, key, checker);
  result.shape = read_sizes(entry, key, checker);
  result.device = read_string(entry, "device", key, checker);
  checker.check(is_possible(result.shape, at::elementSize(result.dtype)), key, "\"shape\" is too large");
  return result;
}

void check_class(const json& root, const Checker& checker) {
  const std::string type = read_string(root, "_type", "", checker);
  const auto id = root.find("_class");
  const bool has_id = id != root.end() && id->is_string();
  checker.check(
      has_id ? *id == kClass : type == kType, "holds \"", type,
      "\"; what is no TensorDict of tensors cannot be read: stacks that are lazy, classes, and values that are "
      "no tensors");
  const auto version = root.find("_format_version");
  if (version == root.end() || version->is_object()) return;
  checker.check(version->is_number_integer() && *version >= 0 && *version <= kFormatVersion, "has the format version ",
                version->dump(), "; known are those up to ", kFormatVersion);
}

/// Says whether a name stands for no entry of the tree, though an entry may have that name too.
bool may_be_format_key(std::string_view key) { return key == "_format_version" || key == "_class" || key == "_names"; }

}  // namespace

std::size_t MemmapEntry::nbytes() const {
  std::size_t bytes = at::elementSize(dtype);
  for (const int64_t size : shape) bytes *= static_cast<std::size_t>(size);
  return bytes;
}

std::string to_json(const MemmapMetadata& metadata) {
  // Put together by hand, as the order of entries is that of the leaves.
  std::string text = "{";
  const auto add = [&](const std::string& key, const json& value) {
    text += (text.size() > 1 ? ", " : "") + json(key).dump(-1, ' ', /*ensure_ascii=*/true) + ": " + value.dump();
  };
  bool has_version = false;
  bool has_class = false;
  for (const MemmapEntry& entry : metadata.entries) {
    has_version |= entry.key == "_format_version";
    has_class |= entry.key == "_class";
    if (entry.is_part) {
      add(entry.key, {{"type", "TensorDict"}});
    } else {
      add(entry.key,
          {{"device", entry.device}, {"shape", entry.shape}, {"dtype", dtype_name(entry.dtype)}, {"is_nested", false}});
    }
  }
  add("shape", metadata.batch_size);
  add("device", "cpu");
  add("_type", kType);
  // A leaf of such a name has its place; readers then go by the others.
  if (!has_version) add("_format_version", kFormatVersion);
  if (!has_class) add("_class", kClass);
  return text + "}";
}

MemmapMetadata from_json(std::string_view call, const std::string& text, const std::string& file) {
  const Checker checker(call, file);
  const auto [root, keys] = parse(text, checker);
  check_class(root, checker);
  MemmapMetadata metadata;
  metadata.batch_size = read_sizes(root, "", checker);
  checker.check(is_possible(metadata.batch_size, 1), "\"shape\" is too large");
  read_string(root, "device", "", checker);
  for (const std::string& key : keys) {
    const json& entry = root.at(key);
    if (is_reserved_key(key) || (may_be_format_key(key) && !entry.is_object())) continue;
    metadata.entries.push_back(read_entry(key, entry, checker));
  }
  return metadata;
}

bool is_utf8(const std::string& text) {
  try {
    json(text).dump();
    return true;
  } catch (const json::type_error&) {
    return false;
  }
}

bool is_reserved_key(std::string_view key) { return key == "shape" || key == "device" || key == "_type"; }

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [known, name] : kDtypes) {
    if (known == dtype) return name;
  }
  return "";
}

std::string encoded_key(std::string_view key) {
  if (key.empty()) return "%";
  if (key == ".") return "%2E";
  if (key == "..") return "%2E%2E";
  constexpr std::string_view kUnsafe = "/<>:\"|?*\\ %\x7f";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string name;
  for (const char c : key) {
    const auto code = static_cast<unsigned char>(c);
    if (code >= 32 && kUnsafe.find(c) == std::string_view::npos) {
      name += c;
    } else {
      name += {'%', kDigits[code / 16], kDigits[code % 16]};
    }
  }
  return name;
}

}  // namespace graft::internal
