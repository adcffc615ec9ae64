#include "functional/internal/recorded_graph.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include "absl/container/flat_hash_set.h"

namespace graft::internal {

using torch::autograd::AccumulateGrad;
using torch::autograd::Node;

uint64_t recorded_so_far() { return at::sequence_number::peek(); }

std::vector<at::Tensor> accumulated_from(const std::vector<at::Tensor>& results, uint64_t since) {
  std::vector<at::Tensor> accumulated;
  std::vector<const Node*> pending;
  absl::flat_hash_set<const Node*> seen;
  const auto add = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) pending.push_back(node);
  };
  for (const at::Tensor& result : results) {
    if (result.defined()) add(result.grad_fn().get());
  }
  const uint64_t this_thread = at::RecordFunction::currentThreadId();
  while (!pending.empty()) {
    const Node* const node = pending.back();
    pending.pop_back();
    if (const auto* const end = dynamic_cast<const AccumulateGrad*>(node)) {
      accumulated.push_back(end->variable);
    } else if (node->thread_id() == this_thread && node->sequence_nr() >= since) {
      for (const torch::autograd::Edge& edge : node->next_edges()) add(edge.function.get());
    }
  }
  return accumulated;
}

}  // namespace graft::internal
