// Changes: what others than Graft, and Graft on demand, have changed in a net so far, so that a difference from before
// can be told from a fault.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace graft::testing {

class Changes {
 public:
  /// A body or a forward writes to a tensor.
  void note_write(const at::Tensor& tensor);
  /// Graft gives a tensor other values.
  void note_new_values(const at::Tensor& tensor);
  /// Graft may move a tensor's version.
  void note_move(const at::Tensor& tensor) { moved_.push_back(tensor); }
  /// A body registers or unregisters something.
  void note_layout() { ++layouts_; }

  /// Has a body or a forward written to a tensor, or to another over its storage?
  bool is_written(const at::Tensor& tensor) const;
  /// May Graft have moved its version?
  bool has_moved(const at::Tensor& tensor) const;
  /// Has nobody written to anything?
  bool is_quiet() const { return written_.empty() && moved_.empty(); }
  /// How often somebody wrote to something.
  int64_t writes() const { return writes_; }
  /// How often a body registered or unregistered something.
  int64_t layouts() const { return layouts_; }

 private:
  std::vector<at::Tensor> written_;
  std::vector<c10::Storage> written_storages_;
  std::vector<at::Tensor> moved_;
  int64_t writes_ = 0;
  int64_t layouts_ = 0;
};

}  // namespace graft::testing
