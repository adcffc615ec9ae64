// Files as torch.save writes them: a zip archive of a pickle and of storages.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tensordict/internal/pickle.h"
#include "tensordict/tensordict.h"

namespace graft::internal {

/// The tensors of a file to be, and the storages that they need, each once.
class TorchFileWriter {
 public:
  /// Takes the leaves of `tree`. A storage that two leaves share stays shared; otherwise a leaf's storage is what the
  /// leaf shows.
  /// \throws c10::ValueError starting with `call` and listing every leaf that has no data of its own, or a dtype that
  ///     torch.save does not have.
  TorchFileWriter(std::string_view call, const TensorDict& tree);

  /// Adds the leaf at `position` to a pickle.
  void add_leaf(std::size_t position, PickleWriter& pickle) const;

  /// Writes the file, whole or not at all.
  /// \throws c10::Error naming the file if it cannot be written.
  void write(const std::string& file, const std::string& pickle) const;

 private:
  std::string_view call_;
  std::vector<at::Tensor> leaves_;       // views of the storages
  std::vector<std::size_t> storage_of_;  // for each leaf
  std::vector<at::Tensor> storages_;     // for each storage, a leaf that has it
};

/// Reads a file that torch.save wrote.
/// \throws c10::Error if it is no such file or damaged; see with_file_named.
Pickle read_torch_file(const std::string& file);

/// Makes tensors that show the same data in the same way one tensor: files say which storage a tensor has, not which
/// tensors were one. See ties.h.
void restore_ties(std::vector<at::Tensor>& tensors);

/// Calls `read`. \throws c10::Error starting with `call` and naming `file` in the place of any exception of `read`.
TensorDict with_file_named(std::string_view call, const std::string& file, absl::FunctionRef<TensorDict()> read);

}  // namespace graft::internal
