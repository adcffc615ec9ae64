#include "tensordict/internal/pickle.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace graft::internal {
namespace {

using Kind = PickledValue::Kind;

struct DtypeNames {
  at::ScalarType dtype;
  const char* storage;  // the class of its storage in torch, if it has one
  const char* name;
};

constexpr std::array<DtypeNames, 16> kDtypes = {{
    {at::kDouble, "DoubleStorage", "float64"},
    {at::kFloat, "FloatStorage", "float32"},
    {at::kHalf, "HalfStorage", "float16"},
    {at::kBFloat16, "BFloat16Storage", "bfloat16"},
    {at::kLong, "LongStorage", "int64"},
    {at::kInt, "IntStorage", "int32"},
    {at::kShort, "ShortStorage", "int16"},
    {at::kChar, "CharStorage", "int8"},
    {at::kByte, "ByteStorage", "uint8"},
    {at::kBool, "BoolStorage", "bool"},
    {at::kComplexDouble, "ComplexDoubleStorage", "complex128"},
    {at::kComplexFloat, "ComplexFloatStorage", "complex64"},
    {at::kComplexHalf, nullptr, "complex32"},
    {at::kUInt16, nullptr, "uint16"},
    {at::kUInt32, nullptr, "uint32"},
    {at::kUInt64, nullptr, "uint64"},
}};

const DtypeNames* find_dtype(at::ScalarType dtype) {
  const auto* found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const auto& names) { return names.dtype == dtype; });
  return found == kDtypes.end() ? nullptr : found;
}

constexpr std::string_view kRebuild = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kRebuildNew = "torch._utils._rebuild_tensor_v3";  // of dtypes without a class of storage
constexpr std::string_view kRebuildParameter = "torch._utils._rebuild_parameter";
constexpr std::string_view kRestoreType = "torch.jit._pickle.restore_type_tag";  // LibTorch's, around a dict
constexpr std::string_view kOrderedDict = "collections.OrderedDict";

// The codes of the pickle format that torch.save and pickles of protocols 2 to 5 of such values have.
enum Code : unsigned char {
  kProto = 0x80,
  kFrame = 0x95,
  kStop = '.',
  kMark = '(',
  kNone = 'N',
  kTrue = 0x88,
  kFalse = 0x89,
  kInt1 = 'K',
  kInt2 = 'M',
  kInt4 = 'J',
  kLong1 = 0x8a,
  kFloat = 'G',
  kText = 'X',
  kShortText = 0x8c,
  kLongText = 0x8d,
  kEmptyTuple = ')',
  kTuple = 't',
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kEmptyList = ']',
  kAppend = 'a',
  kAppends = 'e',
  kEmptyDict = '}',
  kSetItem = 's',
  kSetItems = 'u',
  kGlobal = 'c',
  kStackGlobal = 0x93,
  kReduce = 'R',
  kBuild = 'b',
  kPersistentId = 'Q',
  kPut1 = 'q',
  kPut4 = 'r',
  kMemoize = 0x94,
  kGet1 = 'h',
  kGet4 = 'j',
};

class Reader {
 public:
  Reader(std::string_view bytes, StorageReader read_storage) : bytes_(bytes), read_storage_(read_storage) {}

  Pickle read() {
    while (step()) {
    }
    pickle_.root = pop();
    return std::move(pickle_);
  }

 private:
  // --- Bytes

  std::string_view take(std::size_t size) {
    TORCH_CHECK(size <= bytes_.size(), "the pickle ends too early");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  /// Returns the next `size` bytes, at most 8, as a number that is not negative.
  uint64_t take_number(std::size_t size) {
    uint64_t number = 0;
    const std::string_view taken = take(size);
    for (std::size_t i = size; i-- > 0;) number = number << 8 | static_cast<unsigned char>(taken[i]);
    return number;
  }

  std::string_view take_line() {
    const std::size_t end = bytes_.find('\n');
    TORCH_CHECK(end != bytes_.npos, "the pickle ends too early");
    const std::string_view line = take(end);
    take(1);
    return line;
  }

  // --- The stack

  std::size_t pop() {
    const std::size_t floor = marks_.empty() ? 0 : marks_.back();
    TORCH_CHECK(stack_.size() > floor, "the pickle takes a value that is not there");
    const std::size_t position = stack_.back();
    stack_.pop_back();
    return position;
  }

  std::vector<std::size_t> pop(std::size_t count) {
    std::vector<std::size_t> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    return items;
  }

  std::vector<std::size_t> pop_mark() {
    TORCH_CHECK(!marks_.empty(), "the pickle takes a mark that is not there");
    std::vector<std::size_t> items = pop(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }

  PickledValue& top() {
    const std::size_t position = pop();
    stack_.push_back(position);
    return pickle_.values[position];
  }

  void push(PickledValue value) {
    stack_.push_back(pickle_.values.size());
    pickle_.values.push_back(std::move(value));
  }

  void push_list(Kind kind, std::vector<std::size_t> items) { push({.kind = kind, .items = std::move(items)}); }

  void put(uint64_t key) {
    const std::size_t position = pop();
    stack_.push_back(position);
    memo_[key] = position;
  }

  void get(uint64_t key) {
    const auto found = memo_.find(key);
    TORCH_CHECK(found != memo_.end(), "the pickle recalls what it has not kept");
    stack_.push_back(found->second);
  }

  // --- Values

  PickledValue& value(std::size_t position) { return pickle_.values[position]; }

  const PickledValue& expect(std::size_t position, Kind kind, const char* what) {
    TORCH_CHECK(value(position).kind == kind, "expected ", what, ", found ", describe(value(position)));
    return value(position);
  }

  std::vector<int64_t> sizes(std::size_t position) {
    std::vector<int64_t> result;
    for (const std::size_t item : expect(position, Kind::kTuple, "a tuple of sizes").items) {
      result.push_back(expect(item, Kind::kInteger, "a size").integer);
    }
    return result;
  }

  void extend(Kind kind, const std::vector<std::size_t>& items) {
    PickledValue& container = top();
    if (container.kind == Kind::kOther) return;  // as unknown as before
    TORCH_CHECK(container.kind == kind && (kind == Kind::kList || items.size() % 2 == 0), "the pickle adds items to ",
                describe(container));
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    push({.kind = Kind::kOther, .text = std::string(module) + "." + std::string(name)});
  }

  void reduce() {
    const std::size_t arguments = pop();
    const std::string function = value(pop()).text;
    expect(arguments, Kind::kTuple, "a tuple of arguments");
    const std::vector<std::size_t> items = value(arguments).items;
    if (function == kOrderedDict && items.empty()) {
      push_list(Kind::kDict, {});
    } else if (function == kRebuild || function == kRebuildNew) {
      push({.kind = Kind::kTensor, .tensor = rebuild(items, /*is_new=*/function == kRebuildNew)});
    } else if (function == kRebuildParameter) {
      TORCH_CHECK(items.size() == 3, function, " has ", items.size(), " arguments, expected 3");
      at::Tensor parameter = expect(items[0], Kind::kTensor, "a tensor").tensor.detach();
      const bool requires_grad = expect(items[1], Kind::kBool, "a bool").integer != 0;
      push({.kind = Kind::kTensor, .tensor = with_grad(std::move(parameter), requires_grad)});
    } else if (function == kRestoreType && !items.empty()) {
      stack_.push_back(items[0]);
    } else {
      push({.kind = Kind::kOther, .text = function});
    }
  }

  /// What a pickle sets on an object. Only the `_metadata` of an OrderedDict comes in such files, and is not needed.
  void build() {
    pop();
    TORCH_CHECK(top().kind == Kind::kDict || top().kind == Kind::kOther, "the pickle sets attributes of ",
                describe(top()));
  }

  void push_storage() {
    const std::vector<std::size_t> items = expect(pop(), Kind::kTuple, "the id of a storage").items;
    TORCH_CHECK(items.size() == 5 && value(items[0]).text == "storage", "an id that is no storage's");
    push({.kind = Kind::kStorage, .items = items});
  }

  static at::Tensor with_grad(at::Tensor tensor, bool requires_grad) {
    const bool fits = !requires_grad || at::isFloatingType(tensor.scalar_type()) || tensor.is_complex();
    TORCH_CHECK(fits, "a tensor of dtype ", tensor.scalar_type(), " requires grad");
    return tensor.set_requires_grad(requires_grad);
  }

  at::ScalarType dtype_of(const PickledValue& type, bool is_new) {
    TORCH_CHECK(type.kind == Kind::kOther, "expected a dtype, found ", describe(type));
    for (const DtypeNames& names : kDtypes) {
      if (!is_new && names.storage && type.text == std::string("torch.") + names.storage) return names.dtype;
      if (is_new && type.text == std::string("torch.") + names.name) return names.dtype;
    }
    TORCH_CHECK(false, type.text, " is not known");
  }

  /// Makes a tensor from the arguments storage, offset, sizes, strides, requires_grad, hooks, and of the new kind
  /// dtype; metadata may follow.
  at::Tensor rebuild(const std::vector<std::size_t>& items, bool is_new) {
    const std::size_t known = is_new ? 7 : 6;
    TORCH_CHECK(items.size() == known || items.size() == known + 1, "a tensor of ", items.size(), " arguments");
    if (items.size() > known) {
      const PickledValue& metadata = value(items[known]);
      TORCH_CHECK(metadata.kind == Kind::kNone || (metadata.kind == Kind::kDict && metadata.items.empty()),
                  "a tensor with metadata, such as one that is to be conjugated");
    }
    const std::vector<std::size_t> id = expect(items[0], Kind::kStorage, "a storage").items;
    const at::ScalarType dtype = dtype_of(value(is_new ? items[6] : id[1]), is_new);
    const std::vector<int64_t> shape = sizes(items[2]);
    const std::vector<int64_t> strides = sizes(items[3]);
    const int64_t offset = expect(items[1], Kind::kInteger, "an offset").integer;
    const std::string& key = expect(id[2], Kind::kString, "the key of a storage").text;
    const std::string& device = expect(id[3], Kind::kString, "a device").text;
    const c10::Storage storage = read_storage_(key, device);
    check_view(shape, strides, offset, at::elementSize(dtype), storage.nbytes());
    at::Tensor tensor = at::empty({0}, at::dtype(dtype).device(storage.device()));
    tensor.set_(storage, offset, shape, strides);
    return with_grad(std::move(tensor), expect(items[4], Kind::kBool, "a bool").integer != 0);
  }

  /// Checks that the elements lie within the storage.
  static void check_view(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int64_t offset,
                         std::size_t item, std::size_t bytes) {
    bool fits = shape.size() == strides.size() && offset >= 0;
    int64_t last = offset;                     // the element that lies farthest behind
    int64_t all = static_cast<int64_t>(item);  // the bytes of a contiguous copy
    bool has_elements = true;
    for (std::size_t i = 0; i < shape.size() && fits; ++i) {
      int64_t reach = 0;
      fits = shape[i] >= 0 && strides[i] >= 0 && !__builtin_mul_overflow(all, std::max<int64_t>(shape[i], 1), &all) &&
             !__builtin_mul_overflow(std::max<int64_t>(shape[i] - 1, 0), strides[i], &reach) &&
             !__builtin_add_overflow(last, reach, &last);
      has_elements &= shape[i] > 0;
    }
    const uint64_t available = bytes / item;
    fits =
        fits && (has_elements ? static_cast<uint64_t>(last) < available : static_cast<uint64_t>(offset) <= available);
    TORCH_CHECK(fits, "a tensor of sizes ", at::IntArrayRef(shape), ", strides ", at::IntArrayRef(strides),
                " and offset ", offset, ", which is not within its storage of ", bytes, " bytes");
  }

  void push_long() {
    const std::size_t size = take_number(1);
    TORCH_CHECK(size <= 8, "an integer of more than 64 bits");
    uint64_t number = take_number(size);
    const bool negative = size > 0 && (number >> (8 * size - 1)) != 0;
    if (negative && size < 8) number |= ~uint64_t{0} << (8 * size);
    push({.kind = Kind::kInteger, .integer = static_cast<int64_t>(number)});
  }

  /// Does what the next code says. \returns false at the end.
  bool step() {
    const auto code = static_cast<unsigned char>(take(1)[0]);
    switch (code) {
      case kProto:
        take(1);
        return true;
      case kFrame:
        take(8);
        return true;
      case kStop:
        return false;
      case kMark:
        marks_.push_back(stack_.size());
        return true;
      case kNone:
        push({});
        return true;
      case kTrue:
      case kFalse:
        push({.kind = Kind::kBool, .integer = code == kTrue});
        return true;
      case kInt1:
        push({.kind = Kind::kInteger, .integer = static_cast<int64_t>(take_number(1))});
        return true;
      case kInt2:
        push({.kind = Kind::kInteger, .integer = static_cast<int64_t>(take_number(2))});
        return true;
      case kInt4:
        push({.kind = Kind::kInteger, .integer = static_cast<int32_t>(take_number(4))});
        return true;
      case kLong1:
        push_long();
        return true;
      case kFloat:
        take(8);
        push({.kind = Kind::kFloat});
        return true;
      case kText:
        push({.kind = Kind::kString, .text = std::string(take(take_number(4)))});
        return true;
      case kShortText:
        push({.kind = Kind::kString, .text = std::string(take(take_number(1)))});
        return true;
      case kLongText:
        push({.kind = Kind::kString, .text = std::string(take(take_number(8)))});
        return true;
      case kEmptyTuple:
        push_list(Kind::kTuple, {});
        return true;
      case kTuple:
        push_list(Kind::kTuple, pop_mark());
        return true;
      case kTuple1:
      case kTuple2:
      case kTuple3:
        push_list(Kind::kTuple, pop(code - kTuple1 + 1));
        return true;
      case kEmptyList:
        push_list(Kind::kList, {});
        return true;
      case kAppend:
        extend(Kind::kList, pop(1));
        return true;
      case kAppends:
        extend(Kind::kList, pop_mark());
        return true;
      case kEmptyDict:
        push_list(Kind::kDict, {});
        return true;
      case kSetItem:
        extend(Kind::kDict, pop(2));
        return true;
      case kSetItems:
        extend(Kind::kDict, pop_mark());
        return true;
      case kGlobal: {
        const std::string_view module = take_line();
        push_global(module, take_line());
        return true;
      }
      case kStackGlobal: {
        const std::vector<std::size_t> names = pop(2);
        push_global(value(names[0]).text, value(names[1]).text);
        return true;
      }
      case kReduce:
        reduce();
        return true;
      case kBuild:
        build();
        return true;
      case kPersistentId:
        push_storage();
        return true;
      case kPut1:
        put(take_number(1));
        return true;
      case kPut4:
        put(take_number(4));
        return true;
      case kMemoize:
        put(memo_.size());
        return true;
      case kGet1:
        get(take_number(1));
        return true;
      case kGet4:
        get(take_number(4));
        return true;
      default:
        TORCH_CHECK(false, "the pickle has the code ", static_cast<int>(code), ", which is not known");
    }
  }

  std::string_view bytes_;
  StorageReader read_storage_;
  Pickle pickle_;
  std::vector<std::size_t> stack_;
  std::vector<std::size_t> marks_;  // the sizes that the stack had
  absl::flat_hash_map<uint64_t, std::size_t> memo_;
};

std::string little_endian(uint64_t number, std::size_t size) {
  std::string bytes;
  for (std::size_t i = 0; i < size; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

}  // namespace

Pickle read_pickle(std::string_view bytes, StorageReader read_storage) { return Reader(bytes, read_storage).read(); }

std::string describe(const PickledValue& value) {
  switch (value.kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.integer ? "True" : "False";
    case Kind::kInteger:
      return "the number " + std::to_string(value.integer);
    case Kind::kFloat:
      return "a float";
    case Kind::kString:
      return "the text \"" + value.text + "\"";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kList:
      return "a list";
    case Kind::kDict:
      return "a dict";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kStorage:
      return "a storage";
    case Kind::kOther:
      return "the Python object " + value.text;
  }
  return "";
}

PickleWriter::PickleWriter() : bytes_{static_cast<char>(kProto), 2} {}

void PickleWriter::mark() { add_code(kMark); }

void PickleWriter::end_tuple() { add_code(kTuple); }

void PickleWriter::begin_dict() {
  add_code(kEmptyDict);
  mark();
}

void PickleWriter::end_dict() { add_code(kSetItems); }

void PickleWriter::add(std::string_view text) {
  add_code(kText);
  bytes_ += little_endian(text.size(), 4);
  bytes_ += text;
}

void PickleWriter::add(int64_t number) {
  if (number >= std::numeric_limits<int32_t>::min() && number <= std::numeric_limits<int32_t>::max()) {
    add_code(kInt4);
    bytes_ += little_endian(static_cast<uint64_t>(number), 4);
  } else {
    add_code(static_cast<char>(kLong1));
    bytes_ += little_endian(8, 1) + little_endian(static_cast<uint64_t>(number), 8);
  }
}

void PickleWriter::add_bool(bool value) { add_code(static_cast<char>(value ? kTrue : kFalse)); }

void PickleWriter::add(at::IntArrayRef sizes) {
  mark();
  for (const int64_t size : sizes) add(size);
  end_tuple();
}

void PickleWriter::add(const at::Tensor& tensor, const std::string& key) {
  const DtypeNames& names = *find_dtype(tensor.scalar_type());
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  add_global("torch._utils", names.storage ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  mark();
  mark();
  add("storage");
  add_global(names.storage ? "torch" : "torch.storage", names.storage ? names.storage : "UntypedStorage");
  add(key);
  add(tensor.device().str());
  add(names.storage ? bytes / tensor.element_size() : bytes);
  end_tuple();
  add_code(kPersistentId);
  add(tensor.storage_offset());
  add(tensor.sizes());
  add(tensor.strides());
  add_bool(tensor.requires_grad());
  add_global("collections", "OrderedDict");  // of hooks
  add_code(kEmptyTuple);
  add_code(kReduce);
  if (!names.storage) add_global("torch", names.name);
  end_tuple();
  add_code(kReduce);
}

std::string PickleWriter::finish() {
  add_code(kStop);
  return std::move(bytes_);
}

void PickleWriter::add_global(std::string_view module, std::string_view name) {
  add_code(kGlobal);
  bytes_ += module;
  bytes_ += '\n';
  bytes_ += name;
  bytes_ += '\n';
}

bool is_picklable(at::ScalarType dtype) { return find_dtype(dtype) != nullptr; }

}  // namespace graft::internal
