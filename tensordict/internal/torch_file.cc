#include "tensordict/internal/torch_file.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <caffe2/serialize/inline_container.h>
#include <zlib.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <sstream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tensordict/internal/replaced_file.h"
#include "tensordict/internal/zip_checksums.h"

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

bool shows_the_same(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type() && a.requires_grad() == b.requires_grad();
}

/// The entries of a file, with what tells damage.
class Records {
 public:
  explicit Records(const std::string& file)
      : file_size_(std::filesystem::file_size(file)), checksums_(read_zip_checksums(file)), reader_(file) {}

  bool has(const std::string& name) { return reader_.hasRecord(name); }

  std::pair<at::DataPtr, std::size_t> read(const std::string& name) {
    const std::size_t size = reader_.getRecordSize(name);
    TORCH_CHECK(size <= file_size_, "\"", name, "\" is longer than the file");
    auto [data, count] = reader_.getRecord(name);
    TORCH_CHECK(count == size, "\"", name, "\" is cut off");
    const uint32_t expected = checksum(name);
    TORCH_CHECK(expected == 0 || expected == crc32_z(0, static_cast<const Bytef*>(data.get()), size), "\"", name,
                "\" is damaged: another checksum");
    return {std::move(data), size};
  }

 private:
  /// Returns the checksum of an entry; the reader leaves out the name of the archive, which stands before each name.
  uint32_t checksum(const std::string& name) const {
    const auto found = checksums_.find(name);
    return found == checksums_.end() ? 0 : found->second;
  }

  std::size_t file_size_;
  absl::flat_hash_map<std::string, uint32_t> checksums_;
  PyTorchStreamReader reader_;
};

/// Reads the storages of a file, each once.
class Storages {
 public:
  explicit Storages(Records& records) : records_(records) {}

  c10::Storage operator()(const std::string& key, const std::string& device) {
    const auto found = storages_.find(key);
    if (found != storages_.end()) return found->second;
    const c10::Storage storage = read(key, device);
    storages_.emplace(key, storage);
    return storage;
  }

 private:
  c10::Storage read(const std::string& key, const std::string& device) {
    auto [data, size] = records_.read("data/" + key);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), size, std::move(data));
    if (device == "cpu") return storage;
    const at::Tensor bytes = at::empty({0}, at::kByte).set_(storage);
    return bytes.to(at::Device(device)).storage();
  }

  Records& records_;
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
  Records records(file);
  if (records.has("byteorder")) {
    const auto [data, size] = records.read("byteorder");
    const std::string_view order(static_cast<const char*>(data.get()), size);
    TORCH_CHECK(order == "little", "the byte order is not little");
  }
  const auto [data, size] = records.read("data.pkl");
  Storages storages(records);
  return read_pickle({static_cast<const char*>(data.get()), size},
                     [&](const std::string& key, const std::string& device) { return storages(key, device); });
}

void restore_ties(std::vector<at::Tensor>& tensors) {
  absl::flat_hash_map<const c10::StorageImpl*, std::vector<std::size_t>> known;  // different ones of each storage
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    std::vector<std::size_t>& others = known[tensors[i].storage().unsafeGetStorageImpl()];
    const auto same = std::find_if(others.begin(), others.end(),
                                   [&](std::size_t other) { return shows_the_same(tensors[i], tensors[other]); });
    if (same == others.end()) {
      others.push_back(i);
    } else {
      tensors[i] = tensors[*same];
    }
  }
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
