// Snapshot: what a module tree and the calling thread are like, to see by name what a call left changed.
//
//   const Snapshot before(*net);
//   EXPECT_ANY_THROW(functional_call(net, bad, x));
//   EXPECT_EQ(before.changes_to(Snapshot(*net)), "");
#pragma once

#include <ATen/core/Tensor.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace graft::testing {

/// Of every module of a tree: the registries, names and order included, and every handle that the slot table knows,
/// with the tensor in it, its flag, version, gradient and values. Of the thread: how many transforms run, the modes of
/// autograd and the dispatch keys. It runs no operator, so it can be taken inside transforms too; there the values of
/// transformed tensors are left out.
class Snapshot {
 public:
  explicit Snapshot(torch::nn::Module& root);

  /// Returns a line for each thing that is different in `now`, "" if nothing is.
  std::string changes_to(const Snapshot& now) const;

  /// Returns the same for what belongs to the thread alone.
  std::string thread_changes_to(const Snapshot& now) const;

 private:
  /// A thing by name, and what it is like.
  using Facts = std::vector<std::pair<std::string, std::string>>;

  static std::string changes(const Facts& before, const Facts& now);
  void add_thread();
  void add_module(torch::nn::Module& module, const std::string& path);
  void add_handle(const std::string& name, const at::Tensor& tensor);

  Facts thread_;
  Facts modules_;
  std::set<const torch::nn::Module*> seen_;
  std::vector<at::Tensor> held_;  ///< so that no other tensor gets the address of one that was seen
};

}  // namespace graft::testing
