// ModuleSet: the modules of a tree, to compare with those of another tree.
#pragma once

#include <cstdint>
#include <mutex>
#include <typeinfo>
#include <vector>

namespace torch::nn {
class Module;
}

namespace graft::internal {

class ModuleSet {
 public:
  struct Entry {
    const torch::nn::Module* module;
    const std::type_info* type;
  };

  /// `entries`: each module once, parents before children.
  explicit ModuleSet(std::vector<Entry> entries);
  /// The modules of a tree, each once. Reads which children there are, and no tensor.
  explicit ModuleSet(torch::nn::Module& root);
  /// Waits for whoever holds `in_use`.
  ~ModuleSet();
  ModuleSet(const ModuleSet&) = delete;
  ModuleSet& operator=(const ModuleSet&) = delete;

  /// Returns the first module of this tree that is also in the other, or nullptr.
  const Entry* common_with(const ModuleSet& other) const;

  /// No other set ever has the same.
  uint64_t number() const { return number_; }

  /// Held by a thread that reads sets of others: meanwhile none is destroyed.
  static std::mutex& in_use();

 private:
  const uint64_t number_;
  const std::vector<Entry> entries_;
  std::vector<const torch::nn::Module*> by_address_;
};

}  // namespace graft::internal
