#include "tensordict/archive.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"

namespace graft {
namespace {

constexpr const char* kFormat = "graft.TensorDict";
constexpr int64_t kVersion = 1;

void check_have_data(const TensorDict& tree) {
  std::ostringstream problems;
  for (const auto& [path, value] : tree.leaves()) {
    if (!value.has_storage()) problems << "\n  \"" << path << "\": " << value.toString();
  }
  const std::string text = problems.str();
  TORCH_CHECK_VALUE(text.empty(), "save: these leaves have no data that could be written:", text);
}

/// Returns the leaf without the part of its storage that it does not show.
at::Tensor compact(const at::Tensor& value) {
  if (value.storage().nbytes() == value.nbytes()) return value;
  return value.detach().clone().requires_grad_(value.requires_grad());
}

at::IValue to_ivalue(const TensorDict& tree) {
  std::vector<at::IValue> batch_size(tree.batch_size().begin(), tree.batch_size().end());
  std::vector<at::IValue> leaves;
  for (const auto& [path, value] : tree.leaves()) {
    leaves.emplace_back(c10::ivalue::Tuple::create(path, compact(value)));
  }
  return c10::ivalue::Tuple::create(kFormat, kVersion, c10::ivalue::Tuple::create(std::move(batch_size)),
                                    c10::ivalue::Tuple::create(std::move(leaves)));
}

/// Returns the elements of a tuple. The conversions of IValue throw for what is no tuple, number, string or tensor.
std::vector<at::IValue> elements(const at::IValue& tuple, std::size_t size) {
  std::vector<at::IValue> values = tuple.toTuple()->elements().vec();
  TORCH_CHECK(values.size() == size, "a tuple of ", values.size(), " elements, expected ", size);
  return values;
}

TensorDict from_ivalue(const at::IValue& archive) {
  TORCH_CHECK(archive.isTuple() && !archive.toTupleRef().elements().empty(), "no tuple that starts with a format");
  const at::IValue format = archive.toTupleRef().elements()[0];
  TORCH_CHECK(format.isString() && format.toStringRef() == kFormat, "format ", format, ", expected ", kFormat);
  const std::vector<at::IValue> fields = elements(archive, 4);
  TORCH_CHECK(fields[1].toInt() == kVersion, "version ", fields[1], ", expected ", kVersion);
  std::vector<int64_t> batch_size;
  for (const at::IValue& size : fields[2].toTuple()->elements()) batch_size.push_back(size.toInt());
  std::vector<std::pair<std::string, at::Tensor>> leaves;
  for (const at::IValue& leaf : fields[3].toTuple()->elements()) {
    const std::vector<at::IValue> pair = elements(leaf, 2);
    leaves.emplace_back(pair[0].toStringRef(), pair[1].toTensor());
  }
  return TensorDict(leaves, std::move(batch_size));
}

/// Checks the result of a system call.
void check_done(bool done, const char* what, const std::string& file) {
  TORCH_CHECK(done, "save: cannot ", what, " \"", file, "\": ", std::strerror(errno));
}

void write_all(int descriptor, const std::vector<char>& bytes, const std::string& file) {
  std::size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = ::write(descriptor, bytes.data() + written, bytes.size() - written);
    if (count < 0 && errno == EINTR) continue;
    check_done(count >= 0, "write", file);
    written += static_cast<std::size_t>(count);
  }
}

/// Asks the system to keep the renaming of `file` too. Some file systems cannot, which is no error.
void sync_folder_of(const std::string& file) {
  const std::size_t slash = file.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : file.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

void replace_file(const std::string& file, const std::vector<char>& bytes) {
  std::string aside = file + ".XXXXXX";
  int descriptor = ::mkstemp(aside.data());
  check_done(descriptor >= 0, "write beside", file);
  absl::Cleanup remove_aside = [&] {
    if (descriptor >= 0) ::close(descriptor);
    ::unlink(aside.c_str());
  };
  write_all(descriptor, bytes, file);
  check_done(::fchmod(descriptor, 0644) == 0, "set the mode of", file);  // mkstemp lets only the owner read
  check_done(::fsync(descriptor) == 0, "write", file);
  check_done(::close(std::exchange(descriptor, -1)) == 0, "write", file);
  check_done(std::rename(aside.c_str(), file.c_str()) == 0, "replace", file);
  std::move(remove_aside).Cancel();
  sync_folder_of(file);
}

std::vector<char> read_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  TORCH_CHECK(stream, "load: cannot open \"", file, "\": ", std::strerror(errno));
  std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  TORCH_CHECK(!stream.bad() && !bytes.empty(), "load: \"", file, "\" is empty or cannot be read");
  return bytes;
}

}  // namespace

void save(const TensorDict& tree, const std::string& file) {
  check_have_data(tree);
  replace_file(file, torch::jit::pickle_save(to_ivalue(tree)));
}

TensorDict load(const std::string& file) {
  const std::vector<char> bytes = read_file(file);
  try {
    return from_ivalue(torch::jit::pickle_load(bytes));
  } catch (const std::exception& error) {
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, "load: \"", file,
                "\" is not a whole file of save: ", torch_error ? torch_error->what_without_backtrace() : error.what());
  }
}

}  // namespace graft
