// RandomNet: a module tree that a seed decides, and every handle that its forward reads.
//
//   RandomNet net(seed, Ties::kDrawn);
//   RandomNet twin(seed, Ties::kNone);                      // the same classes, names and options
//   *twin.cells()[3].handle() = value;                      // what net's forward reads from the handle of that number
//   EXPECT_TRUE(net.forward().equal(twin.forward()));
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/random.h"

namespace graft::testing {

using at::Tensor;

/// A container that runs its steps in turn, each from [b, 3] to [b, 3].
struct Net : torch::nn::Module {
  using Step = std::function<Tensor(const Tensor&)>;

  Tensor forward(const Tensor& x);

  std::vector<Step> steps;
  /// Called in the next forward, once.
  std::function<void()> at_start, at_end;
};

/// One handle that forward reads.
struct Cell {
  enum class Kind {
    kMember,    ///< a data member that Graft has been told of
    kPrivate,   ///< one that it knows nothing of
    kRegistry,  ///< an entry of a class that reads its registry
  };

  torch::nn::Module* module;
  std::string member;               ///< the name of the data member, or of the entry
  std::function<Tensor*()> handle;  ///< nullptr while there is none
  Kind kind;
};

enum class Ties {
  kNone,
  kDrawn,  ///< some handles hold tensors of others, in several ways
};

class RandomNet {
 public:
  RandomNet(uint64_t seed, Ties ties);

  Net& root() { return *root_; }
  const std::vector<Cell>& cells() const { return cells_; }
  /// Every container, and every module of the tree.
  const std::vector<Net*>& nets() const { return nets_; }
  const std::vector<torch::nn::Module*>& modules() const { return modules_; }
  /// Do two names stand for one module, or two handles for one tensor?
  bool has_ties() const { return has_ties_; }

  const Tensor& x() const { return x_; }
  Tensor forward() { return root_->forward(x_); }

 private:
  struct Block {
    std::shared_ptr<torch::nn::Module> module;
    Net::Step step;
  };

  std::shared_ptr<Net> make_net(int depth);
  Block make_block(int depth);
  template <typename Impl, typename Call>
  Block block(std::shared_ptr<Impl> module, Call call);
  Block make_normalisation();
  Block make_recurrent();
  Block make_user_class();
  Block make_container(int depth);
  template <typename Impl, typename... Members>
  std::shared_ptr<Impl> with_members(std::shared_ptr<Impl> module, Members... members);
  Tensor vector_parameter();
  void add_cell(torch::nn::Module& module, std::string member, std::function<Tensor*()> handle,
                Cell::Kind kind = Cell::Kind::kMember);
  void tie();
  void tie_two(const Cell& from, const Cell& to);
  void set_values();

  Random random_;
  bool draws_ties_;
  bool has_ties_ = false;
  int count_ = 0;
  std::vector<Cell> cells_;
  std::vector<Net*> nets_;
  std::vector<Block> blocks_;
  std::vector<torch::nn::Module*> modules_;
  std::shared_ptr<Net> root_;
  Tensor x_;
};

}  // namespace graft::testing
