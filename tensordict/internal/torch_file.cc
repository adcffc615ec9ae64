#include "tensordict/internal/torch_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>

#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensordict/internal/replaced_file.h"

namespace graft::internal {
namespace {

using caffe2::serialize::PyTorchStreamReader;
using caffe2::serialize::PyTorchStreamWriter;

std::string obstacle(const at::Tensor& value) {
  if (!value.has_storage() || value.is_meta() || value.is_nested())
    return value.toString() + ", without data of its own";
  if (!is_picklable(value.scalar_type())) return std::string("dtype ") + toString(value.scalar_type());
  return "";
}

/// Returns the leaf without the part of its storage that it does not show.
at::Tensor compact(const at::Tensor& value) {
  const bool is_view = value.is_conj() || value.is_neg();
  if (value.storage().nbytes() == value.nbytes() && !is_view) return value;
  return value.detach().resolve_conj().resolve_neg().clone().requires_grad_(value.requires_grad());
}

/// Reads the storages of a file, each once.
class Storages {
 public:
  Storages(PyTorchStreamReader& reader, std::size_t file_size) : reader_(reader), file_size_(file_size) {}

  c10::Storage operator()(const std::string& key, const std::string& device) {
    const auto found = storages_.find(key);
    if (found != storages_.end()) return found->second;
    const c10::Storage storage = read(key, device);
    storages_.emplace(key, storage);
    return storage;
  }

 private:
  c10::Storage read(const std::string& key, const std::string& device) {
    auto [data, size] = read_record(reader_, "data/" + key, file_size_);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(data));
    if (device == "cpu") return storage;
    const at::Tensor bytes = at::empty({0}, at::kByte).set_(storage);
    return bytes.to(at::Device(device)).storage();
  }

 public:
  static std::pair<at::DataPtr, std::size_t> read_record(PyTorchStreamReader& reader, const std::string& name,
                                                         std::size_t file_size) {
    const std::size_t size = reader.getRecordSize(name);
    TORCH_CHECK(size <= file_size, "\"", name, "\" is longer than the file");
    auto [data, read] = reader.getRecord(name);
    TORCH_CHECK(read == size, "\"", name, "\" is cut off");
    return {std::move(data), size};
  }

 private:
  PyTorchStreamReader& reader_;
  std::size_t file_size_;
  absl::flat_hash_map<std::string, c10::Storage> storages_;
};

}  // namespace

TorchFileWriter::TorchFileWriter(std::string_view call, const TensorDict& tree) : call_(call) {
  std::ostringstream problems;
  absl::flat_hash_map<const c10::StorageImpl*, int> uses;
  for (const auto& [path, value] : tree.leaves()) {
    const std::string problem = obstacle(value);
    if (!problem.empty()) {
      problems << "\n  \"" << path << "\": " << problem;
    } else {
      ++uses[value.storage().unsafeGetStorageImpl()];
    }
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), call, ": these leaves cannot be written, and nothing is:", text);
  absl::flat_hash_map<const c10::StorageImpl*, std::size_t> positions;
  for (const at::Tensor& value : tree.values()) {
    const bool is_shared = uses[value.storage().unsafeGetStorageImpl()] > 1 && !value.is_conj() && !value.is_neg();
    leaves_.push_back(is_shared ? value : compact(value));
    const auto* storage = leaves_.back().storage().unsafeGetStorageImpl();
    const auto [found, is_new] = positions.emplace(storage, storages_.size());
    if (is_new) storages_.push_back(leaves_.back());
    storage_of_.push_back(found->second);
  }
}

void TorchFileWriter::add_leaf(std::size_t position, PickleWriter& pickle) const {
  pickle.add(leaves_[position], std::to_string(storage_of_[position]));
}

void TorchFileWriter::write(const std::string& file, const std::string& pickle) const {
  replace_file(call_, file, [&](int descriptor) {
    std::exception_ptr error;  // what is thrown within must not pass through the code that writes zip files
    const auto write = [&](const void* bytes, std::size_t size) -> std::size_t {
      try {
        write_all(call_, descriptor, bytes, size, file);
        return size;
      } catch (...) {
        if (!error) error = std::current_exception();
        return 0;
      }
    };
    try {
      PyTorchStreamWriter zip(write);
      zip.writeRecord("data.pkl", pickle.data(), pickle.size());
      zip.writeRecord("byteorder", "little", 6);
      for (std::size_t i = 0; i < storages_.size(); ++i) {
        const c10::Storage& storage = storages_[i].storage();
        const auto bytes = static_cast<int64_t>(storage.nbytes());
        const at::Tensor whole = at::empty({0}, storages_[i].options().dtype(at::kByte)).set_(storage, 0, {bytes});
        const at::Tensor data = whole.cpu();
        zip.writeRecord("data/" + std::to_string(i), data.const_data_ptr(), data.nbytes());
      }
      zip.writeEndOfFile();
    } catch (const c10::Error&) {
      if (!error) throw;
    }
    if (error) std::rethrow_exception(error);
  });
}

Pickle read_torch_file(const std::string& file) {
  const std::size_t file_size = std::filesystem::file_size(file);
  PyTorchStreamReader reader(file);
  if (reader.hasRecord("byteorder")) {
    const auto [data, size] = Storages::read_record(reader, "byteorder", file_size);
    TORCH_CHECK(std::string_view(static_cast<const char*>(data.get()), size) == "little",
                "the byte order is not little");
  }
  const auto [data, size] = Storages::read_record(reader, "data.pkl", file_size);
  Storages storages(reader, file_size);
  return read_pickle({static_cast<const char*>(data.get()), size},
                     [&](const std::string& key, const std::string& device) { return storages(key, device); });
}

TensorDict with_file_named(std::string_view call, const std::string& file, absl::FunctionRef<TensorDict()> read) {
  try {
    return read();
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, call, ": cannot read \"", file,
                "\": ", torch_error ? torch_error->what_without_backtrace() : error.what());
  }
}

}  // namespace graft::internal
