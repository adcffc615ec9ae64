#include "functional/internal/saved_state.h"

#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <sstream>

#include "tensordict/nested_key.h"

namespace graft::internal {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

InputArchive reopened(OutputArchive& archive) {
  std::stringstream stream;
  archive.save_to(stream);
  InputArchive input;
  input.load_from(stream);
  return input;
}

void write(const SavedState& state, OutputArchive& archive) {
  for (const auto& [key, value] : state.values) {
    if (value.isTensor()) {
      archive.write(key, value.toTensor(), /*is_buffer=*/!value.toTensor().requires_grad());
    } else {
      archive.write(key, value);
    }
  }
  for (const auto& [key, child] : state.children) {
    OutputArchive nested(archive.compilation_unit());
    write(child, nested);
    archive.write(key, nested);
  }
}

void add_tensors(const SavedState& state, const std::string& path, TensorDict& tree) {
  for (const auto& [key, value] : state.values) {
    if (value.isTensor() && value.toTensor().defined()) tree.set(join_path(path, key), value.toTensor().detach());
  }
  for (const auto& [key, child] : state.children) add_tensors(child, join_path(path, key), tree);
}

/// Returns the value of a dotted name, or nullptr.
c10::IValue* find_value(SavedState& state, std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) {
    for (auto& [key, value] : state.values) {
      if (key == path) return &value;
    }
  } else {
    for (auto& [key, child] : state.children) {
      if (key == path.substr(0, dot)) return find_value(child, path.substr(dot + 1));
    }
  }
  return nullptr;
}

}  // namespace

SavedState saved_state(const torch::nn::Module& module) {
  OutputArchive archive;
  module.save(archive);
  InputArchive input = reopened(archive);
  return read_state(input);
}

SavedState read_state(InputArchive& archive) {
  SavedState state;
  for (const std::string& key : archive.keys()) {
    InputArchive child;
    if (archive.try_read(key, child)) {
      state.children.emplace_back(key, read_state(child));
    } else {
      archive.read(key, state.values.emplace_back(key, c10::IValue()).second);
    }
  }
  return state;
}

TensorDict saved_tensors(const SavedState& state) {
  TensorDict tree;
  add_tensors(state, "", tree);
  return tree;
}

void overlay(SavedState& state, const TensorDict& leaves) {
  std::ostringstream unknown;
  for (const auto& [path, leaf] : leaves.leaves()) {
    c10::IValue* const value = find_value(state, path);
    if (value != nullptr && value->isTensor()) {
      // A module's load takes another dtype for its own and misreads the bytes.
      *value = leaf.detach().to(value->toTensor().scalar_type());
    } else {
      unknown << "\n  \"" << path << "\"";
    }
  }
  TORCH_CHECK_INDEX(unknown.str().empty(), "to_module: the module saves no tensors of these names:", unknown.str(),
                    "\nThe module is unchanged.");
}

void load(torch::nn::Module& module, const SavedState& state) {
  OutputArchive archive;
  write(state, archive);
  InputArchive input = reopened(archive);
  module.load(input);
}

}  // namespace graft::internal
