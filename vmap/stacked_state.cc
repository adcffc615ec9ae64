#include "vmap/stacked_state.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <c10/util/Exception.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "functional/internal/module_registry.h"
#include "functional/module_state.h"
#include "tensordict/join.h"
#include "tensordict/nested_key.h"
#include "tensordict/structure.h"
#include "tensordict/ties.h"

namespace graft {
namespace {

using torch::nn::Module;

std::string class_of(const Module& module) { return c10::demangle(typeid(module).name()); }

const char* mode_of(const Module& module) { return module.is_training() ? "train" : "eval"; }

/// Module number `i`, or what lies at `path` in it, in words.
std::string name_of(std::size_t i, const std::string& path) {
  return path.empty() ? c10::str("module ", i) : c10::str("sub-module \"", path, "\" of module ", i);
}

/// The sub-modules of both, by name; nullptr where one has none of that name.
torch::OrderedDict<std::string, std::pair<Module*, Module*>> paired_children(Module& first, Module& other) {
  torch::OrderedDict<std::string, std::pair<Module*, Module*>> pairs;
  for (const auto& item : internal::child_registry(first)) pairs.insert(item.key(), {item.value().get(), nullptr});
  for (const auto& item : internal::child_registry(other)) {
    if (!pairs.contains(item.key())) pairs.insert(item.key(), {});
    pairs[item.key()].second = item.value().get();
  }
  return pairs;
}

/// Describes how the trees of sub-modules of module number `i` and of the first one differ.
class ModuleComparison {
 public:
  ModuleComparison(std::size_t i, std::ostream& text) : i_(i), text_(text) {}

  /// `modes_differ_above`: the modules that hold these two are in different modes, which says it for all below.
  void compare(Module& first, Module& other, const std::string& path, bool modes_differ_above = false) const {
    if (typeid(first) != typeid(other)) line(path, " is a ", class_of(other), class_of(first));
    const bool modes_differ = first.is_training() != other.is_training();
    if (modes_differ && !modes_differ_above) {
      line(path, " is in ", c10::str(mode_of(other), " mode"), c10::str(mode_of(first), " mode"));
    }
    for (const auto& item : paired_children(first, other)) {
      const auto [first_child, other_child] = item.value();
      const std::string child_path = join_path(path, item.key());
      if (first_child != nullptr && other_child != nullptr) {
        compare(*first_child, *other_child, child_path, modes_differ);
      } else if (first_child != other_child) {
        text_ << "\n  module " << (other_child == nullptr ? i_ : 0) << " has no sub-module \"" << child_path
              << "\", module " << (other_child == nullptr ? 0 : i_) << " has one";
      }
    }
  }

 private:
  void line(const std::string& path, const char* what, const std::string& got, const std::string& expected) const {
    text_ << "\n  " << name_of(i_, path) << what << got << ", " << name_of(0, path) << what << expected;
  }

  std::size_t i_;
  std::ostream& text_;
};

/// Describes which names stand for one tensor in only one of the trees. (Of trees with the same names.)
std::string describe_tie_mismatch(const TensorDict& got, const TensorDict& expected) {
  const std::vector<std::size_t> got_ties = tie_positions(aligned_values("from_modules", expected, got));
  const std::vector<std::size_t> expected_ties = tie_positions(expected.values());
  std::ostringstream text;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got_ties[i] == expected_ties[i]) continue;
    const auto tied_to = [&](std::size_t tie) {
      return tie == i ? std::string("a tensor of its own") : "the tensor of \"" + expected.keys()->path(tie) + "\"";
    };
    text << "\n  \"" << expected.keys()->path(i) << "\": " << tied_to(got_ties[i]) << ", expected "
         << tied_to(expected_ties[i]);
  }
  return text.str();
}

void describe_difference(Module& first, Module& other, std::size_t i, std::ostream& text) {
  ModuleComparison(i, text).compare(first, other, "");
  const TensorDict got = from_module(other), expected = from_module(first);
  std::string mismatch = describe_mismatch(got, expected, {.requires_grad = true});
  if (same_paths(*got.keys(), *expected.keys())) mismatch += describe_tie_mismatch(got, expected);
  if (!mismatch.empty()) text << "\n  module " << i << ":" << mismatch;
}

void check_alike(std::string_view call, const ModuleRefs& modules) {
  TORCH_CHECK_VALUE(!modules.modules().empty(), call, ": expected at least one module");
  std::ostringstream problems;
  for (std::size_t i = 1; i < modules.modules().size(); ++i) {
    describe_difference(*modules.modules()[0], *modules.modules()[i], i, problems);
  }
  TORCH_CHECK_VALUE(problems.str().empty(), call, ": the modules differ:", problems.str());
}

/// Makes a leaf [m, ...] of one leaf of each of m modules.
at::Tensor stack_leaves(const std::vector<at::Tensor>& leaves, bool expand_identical) {
  const at::Tensor& first = leaves.front();
  const auto is_first = [&](const at::Tensor& leaf) { return leaf.is_same(first); };
  if (expand_identical && std::all_of(leaves.begin(), leaves.end(), is_first)) {
    std::vector<int64_t> sizes = first.sizes().vec();
    sizes.insert(sizes.begin(), static_cast<int64_t>(leaves.size()));
    return first.expand(sizes);
  }
  const at::NoGradGuard no_grad;
  return at::stack(leaves).set_requires_grad(first.requires_grad());
}

/// Stacks the state of modules that are alike.
TensorDict stack_state(const ModuleRefs& modules, State state, bool expand_identical) {
  const TensorDict first = from_module(*modules.modules().front(), state);
  std::vector<std::vector<at::Tensor>> leaves(first.size());
  for (Module* module : modules.modules()) {
    const std::vector<at::Tensor> values = aligned_values("from_modules", first, from_module(*module, state));
    for (std::size_t i = 0; i < values.size(); ++i) leaves[i].push_back(values[i]);
  }
  const std::vector<std::size_t> ties = tie_positions(first.values());
  std::vector<at::Tensor> stacked;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    stacked.push_back(ties[i] < i ? stacked[ties[i]] : stack_leaves(leaves[i], expand_identical));
  }
  return TensorDict(first.keys(), std::move(stacked), {static_cast<int64_t>(modules.modules().size())});
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

/// A part of the modules' state.
struct Part {
  const TensorDict& tree;
  State state;
};

void copy_members(const Part& part, const ModuleRefs& modules) {
  const std::vector<TensorDict> members = unbind(part.tree);
  for (std::size_t i = 0; i < members.size(); ++i) {
    for (const auto& [path, value] : from_module(*modules.modules()[i], part.state).leaves()) {
      at::Tensor(value).copy_(members[i][path]);
    }
  }
}

void unstack(const std::vector<Part>& parts, const ModuleRefs& modules) {
  TORCH_CHECK_VALUE(!modules.modules().empty(), "unstack_module_state: expected at least one module");
  const auto count = static_cast<int64_t>(modules.modules().size());
  std::ostringstream problems;
  for (Module* module : modules.modules()) {
    for (const Part& part : parts) describe_misfit(part.tree, from_module(*module, part.state), count, problems);
  }
  TORCH_CHECK_VALUE(problems.str().empty(), "unstack_module_state: the state does not fit the ", count,
                    " modules:", problems.str());
  const at::NoGradGuard no_grad;
  for (const Part& part : parts) copy_members(part, modules);
}

}  // namespace

StackedState stack_module_state(const ModuleRefs& modules) {
  check_alike("stack_module_state", modules);
  return {.params = stack_state(modules, State::kParameters, /*expand_identical=*/false),
          .buffers = stack_state(modules, State::kBuffers, /*expand_identical=*/false)};
}

TensorDict from_modules(const ModuleRefs& modules, const FromModulesOptions& options) {
  check_alike("from_modules", modules);
  return stack_state(modules, State::kAll, options.expand_identical);
}

void unstack_module_state(const StackedState& state, const ModuleRefs& modules) {
  unstack({{state.params, State::kParameters}, {state.buffers, State::kBuffers}}, modules);
}

void unstack_module_state(const TensorDict& state, const ModuleRefs& modules) {
  unstack({{state, State::kAll}}, modules);
}

}  // namespace graft
