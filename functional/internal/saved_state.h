// What a module's `save` writes, read back as values, and handed to its `load`.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft::internal {

/// One archive: values by name, and archives within it.
struct SavedState {
  std::vector<std::pair<std::string, c10::IValue>> values;
  std::vector<std::pair<std::string, SavedState>> children;
};

SavedState saved_state(const torch::nn::Module& module);

/// What an archive holds.
SavedState read_state(torch::serialize::InputArchive& archive);

/// The tensors in it, under dotted names.
TensorDict saved_tensors(const SavedState& state);

/// Replaces tensors by the leaves of their names. \throws c10::IndexError listing leaves whose names it does not have.
void overlay(SavedState& state, const TensorDict& leaves);

/// Calls `module.load` with the state.
void load(torch::nn::Module& module, const SavedState& state);

}  // namespace graft::internal
