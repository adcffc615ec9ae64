// Which leaf is asked for which slot of a module, by which name: what has to hold before any is installed. Slots are
// numbered, so that it is the same for modules of every kind.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace graft::internal {

/// A leaf for a slot, asked for by a tree or by a tie.
struct LeafRequest {
  uint32_t slot;
  const at::Tensor* leaf;
  const std::string* name;  ///< of the leaf
};
using LeafRequests = std::vector<LeafRequest>;

/// Checks that names which stand for one thing are given one leaf. `identity_of` says what a slot stands for.
/// \throws c10::ValueError listing every name that is given another leaf than the first of its identity.
void check_conflicts(std::string_view call, std::string_view module, const LeafRequests& requests,
                     absl::FunctionRef<const void*(uint32_t slot)> identity_of);

/// Returns a request for each slot without a leaf that holds the same tensor as one with a leaf: it gets that leaf.
/// `held` shows what a slot holds.
LeafRequests tied_requests(const LeafRequests& requests, std::size_t slot_count,
                           absl::FunctionRef<at::Tensor(uint32_t slot)> held);

/// Says which slots have a leaf.
std::vector<bool> slots_with_leaf(const LeafRequests& requests, std::size_t slot_count);

/// One line on two names of one thing that were given different leaves.
std::string conflict_line(std::string_view first, std::string_view second);

/// The text of an error on `count` leaves, of which `problems` has a line each.
std::string misfit_message(std::string_view call, std::size_t count, std::string_view module,
                           std::string_view problems);

}  // namespace graft::internal
