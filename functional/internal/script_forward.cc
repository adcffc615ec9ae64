#include "functional/internal/script_forward.h"

#include <ATen/core/class_type.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"

namespace graft::internal {
namespace {

using torch::jit::Graph;
using torch::jit::GraphExecutor;

constexpr std::size_t kRememberedExecutors = 64;

/// Shows every node of a block and of the blocks in it.
void for_each_node(torch::jit::Block& block, absl::FunctionRef<void(torch::jit::Node&)> visitor) {
  for (torch::jit::Node* node : block.nodes()) {
    visitor(*node);
    for (torch::jit::Block* inner : node->blocks()) for_each_node(*inner, visitor);
  }
}

/// Inlines the calls of a graph, and of the parts that it runs on other threads.
void inline_calls(Graph& graph) {
  torch::jit::Inline(graph);
  for_each_node(*graph.block(), [](torch::jit::Node& node) {
    if (node.hasAttribute(c10::attr::Subgraph)) inline_calls(*node.g(c10::attr::Subgraph));
  });
}

/// Writes one line on every call that is left: which code it runs is known only when it runs.
void list_calls(Graph& graph, std::string& calls) {
  for_each_node(*graph.block(), [&](torch::jit::Node& node) {
    if (node.kind() == c10::prim::CallMethod) {
      calls += "\n  " + node.s(c10::attr::name) + " of " + node.input(0)->type()->repr_str();
    } else if (node.kind() == c10::prim::CallFunction) {
      calls += "\n  a function of type " + node.input(0)->type()->repr_str();
    }
    if (node.hasAttribute(c10::attr::Subgraph)) list_calls(*node.g(c10::attr::Subgraph), calls);
  });
}

GraphExecutor make_executor(Graph& graph, const ScriptObject& module) {
  const std::shared_ptr<Graph> inlined = graph.copy();
  inline_calls(*inlined);
  std::string calls;
  list_calls(*inlined, calls);
  TORCH_CHECK_NOT_IMPLEMENTED(calls.empty(), "functional_call: forward of ", script_class_name(module),
                              " makes calls whose code is not known before they run:", calls,
                              "\nGive the attribute the class of the module that it holds, instead of an interface.");
  return GraphExecutor(inlined, "forward", torch::jit::ExecutorExecutionMode::SIMPLE);
}

struct KnownExecutor {
  std::weak_ptr<Graph> graph;  // weak, so that no module is kept
  GraphExecutor executor;
};

/// Returns this thread's executor of a graph.
GraphExecutor executor_of(const std::shared_ptr<Graph>& graph, const ScriptObject& module) {
  thread_local std::vector<KnownExecutor> executors;  // oldest first
  for (const KnownExecutor& known : executors) {
    if (known.graph.lock() == graph) return known.executor;
  }
  GraphExecutor executor = make_executor(*graph, module);
  std::erase_if(executors, [](const KnownExecutor& known) { return known.graph.expired(); });
  if (executors.size() == kRememberedExecutors) executors.erase(executors.begin());
  executors.push_back({graph, executor});
  return executor;
}

}  // namespace

c10::IValue script_forward(const ScriptObject& module, std::vector<c10::IValue> arguments) {
  torch::jit::Function* const method = module->type()->findMethod("forward");
  TORCH_CHECK_VALUE(method != nullptr, "functional_call: ", script_class_name(module), " has no method forward");
  arguments.insert(arguments.begin(), module);
  method->getSchema().checkAndNormalizeInputs(arguments);
  // The method as it is compiled for the present autocast mode.
  const std::shared_ptr<Graph> graph = torch::jit::toGraphFunction(*method).optimized_graph();
  const torch::jit::GraphOptimizerEnabledGuard as_written(false);  // for what the graph runs on other threads
  executor_of(graph, module).run(arguments);
  return std::move(arguments.front());
}

}  // namespace graft::internal
