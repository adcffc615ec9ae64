#include "functional/internal/leaf_requests.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include "absl/container/flat_hash_map.h"

namespace graft::internal {

void check_conflicts(std::string_view call, std::string_view module, const LeafRequests& requests,
                     absl::FunctionRef<const void*(uint32_t slot)> identity_of) {
  absl::flat_hash_map<const void*, const LeafRequest*> first_request;
  std::string problems;
  for (const LeafRequest& request : requests) {
    const LeafRequest& first = *first_request.emplace(identity_of(request.slot), &request).first->second;
    if (first.leaf->is_same(*request.leaf)) continue;
    problems += conflict_line(*first.name, *request.name);
  }
  TORCH_CHECK_VALUE(problems.empty(), call, ": conflicting leaves for module ", module, ":", problems,
                    "\nThe module is unchanged.");
}

LeafRequests tied_requests(const LeafRequests& requests, std::size_t slot_count,
                           absl::FunctionRef<at::Tensor(uint32_t slot)> held) {
  absl::flat_hash_map<const at::TensorImpl*, const LeafRequest*> request_of;
  for (const LeafRequest& request : requests) {
    const at::Tensor tensor = held(request.slot);
    if (tensor.defined()) request_of.emplace(tensor.unsafeGetTensorImpl(), &request);
  }
  const std::vector<bool> has_leaf = slots_with_leaf(requests, slot_count);
  LeafRequests tied;
  for (uint32_t slot = 0; slot < slot_count; ++slot) {
    if (has_leaf[slot]) continue;
    const auto known = request_of.find(held(slot).unsafeGetTensorImpl());
    if (known != request_of.end()) tied.push_back({slot, known->second->leaf, known->second->name});
  }
  return tied;
}

std::vector<bool> slots_with_leaf(const LeafRequests& requests, std::size_t slot_count) {
  std::vector<bool> has_leaf(slot_count);
  for (const LeafRequest& request : requests) has_leaf[request.slot] = true;
  return has_leaf;
}

std::string conflict_line(std::string_view first, std::string_view second) {
  return c10::str("\n  \"", first, "\" and \"", second,
                  "\" stand for one parameter, but were given two different tensors");
}

std::string misfit_message(std::string_view call, std::size_t count, std::string_view module,
                           std::string_view problems) {
  return c10::str(call, ": ", count, count == 1 ? " leaf does" : " leaves do", " not fit module ", module, ":",
                  problems, "\nThe module is unchanged.");
}

}  // namespace graft::internal
