#include "vmap/stacked_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <sstream>

#include "functional/module_state.h"
#include "tensordict/shape.h"
#include "tensordict/structure.h"

namespace graft {
namespace {

using torch::nn::Module;

std::string class_of(const Module& module) { return c10::demangle(typeid(module).name()); }

const char* mode_of(const Module& module) { return module.is_training() ? "train" : "eval"; }

/// Describes how module number `i` differs from the first one; nothing if it does not.
void describe_difference(Module& first, Module& other, std::size_t i, std::ostream& text) {
  if (typeid(first) != typeid(other)) {
    text << "\n  module " << i << " is a " << class_of(other) << ", module 0 is a " << class_of(first);
    return;
  }
  if (first.is_training() != other.is_training()) {
    text << "\n  module " << i << " is in " << mode_of(other) << " mode, module 0 in " << mode_of(first) << " mode";
  }
  const std::string mismatch = describe_mismatch(from_module(other), from_module(first), {.requires_grad = true});
  if (!mismatch.empty()) text << "\n  module " << i << ":" << mismatch;
}

TensorDict stack_state(const ModuleList& modules, State state) {
  std::vector<TensorDict> members;
  for (Module* module : modules.modules()) members.push_back(from_module(*module, state));
  const at::NoGradGuard no_grad;
  const TensorDict stacked = stack(members);
  for (std::size_t i = 0; i < stacked.size(); ++i) {
    stacked.values()[i].set_requires_grad(members.front().values()[i].requires_grad());
  }
  return stacked;
}

/// Says whether `tree` holds one value for each of m modules like `expected`.
void describe_misfit(const TensorDict& tree, const TensorDict& expected, int64_t members, std::ostream& text) {
  if (tree.batch_size() != std::vector<int64_t>{members}) {
    text << "\n  batch size " << at::IntArrayRef(tree.batch_size()) << ", expected [" << members << "]";
    return;
  }
  const std::string mismatch = describe_mismatch(unbind(tree).front(), expected);
  if (!mismatch.empty()) text << mismatch;
}

void copy_members(const TensorDict& tree, const ModuleList& modules, State state) {
  const std::vector<TensorDict> members = unbind(tree);
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const auto& [path, value] : from_module(*modules.modules()[i], state).leaves()) {
      at::Tensor(value).copy_(members[i][path]);
    }
  }
}

}  // namespace

StackedState stack_module_state(const ModuleList& modules) {
  TORCH_CHECK_VALUE(!modules.modules().empty(), "stack_module_state: expected at least one module");
  std::ostringstream problems;
  for (std::size_t i = 1; i < modules.modules().size(); ++i) {
    describe_difference(*modules.modules()[0], *modules.modules()[i], i, problems);
  }
  TORCH_CHECK_VALUE(problems.str().empty(), "stack_module_state: the modules differ:", problems.str());
  return {.params = stack_state(modules, State::kParameters), .buffers = stack_state(modules, State::kBuffers)};
}

void unstack_module_state(const StackedState& state, const ModuleList& modules) {
  TORCH_CHECK_VALUE(!modules.modules().empty(), "unstack_module_state: expected at least one module");
  const auto count = static_cast<int64_t>(modules.modules().size());
  std::ostringstream problems;
  for (Module* module : modules.modules()) {
    describe_misfit(state.params, from_module(*module, State::kParameters), count, problems);
    describe_misfit(state.buffers, from_module(*module, State::kBuffers), count, problems);
  }
  TORCH_CHECK_VALUE(problems.str().empty(), "unstack_module_state: the state does not fit the ", count,
                    " modules:", problems.str());
  const at::NoGradGuard no_grad;
  copy_members(state.params, modules, State::kParameters);
  copy_members(state.buffers, modules, State::kBuffers);
}

}  // namespace graft
