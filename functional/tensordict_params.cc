#include "functional/tensordict_params.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/serialize/archive.h>

#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "functional/internal/module_registry.h"
#include "functional/internal/module_slots.h"
#include "functional/internal/saved_state.h"
#include "tensordict/structure.h"
#include "tensordict/ties.h"

namespace graft {
namespace {

using at::Tensor;
using torch::nn::Module;

// A swap has no members to set: tree() reads the registries.
[[maybe_unused]] const bool registered = [] {
  internal::register_class_slots(
      {.cast = [](Module& module) -> void* { return dynamic_cast<TensorDictParamsImpl*>(&module); },
       .visit = [](void*, internal::HandleVisitor) {},
       .registry_only = true});
  return true;
}();

bool is_parameter(const Tensor& leaf) { return leaf.is_floating_point() || leaf.is_complex(); }

void check_leaves(const TensorDict& params, const TensorDict& buffers) {
  std::ostringstream problems;
  for (const auto& [path, leaf] : params.leaves()) {
    if (is_parameter(leaf) && !leaf.is_leaf()) {
      problems << "\n  \"" << path << "\": the result of a recorded operation, expected a leaf of autograd (detach it, "
               << "or pass it among the buffers)";
    }
    if (buffers.contains(path)) problems << "\n  \"" << path << "\": in both trees";
  }
  for (const auto& [path, leaf] : buffers.leaves()) {
    if (params.contains(path) && params.find(path) == nullptr) problems << "\n  \"" << path << "\": in both trees";
  }
  TORCH_CHECK_VALUE(problems.str().empty(), "TensorDictParams: these leaves cannot be registered:", problems.str());
}

/// from_module only reads.
TensorDict state_of(const TensorDictParamsImpl& module, State state) {
  return from_module(const_cast<TensorDictParamsImpl&>(module), state);
}

}  // namespace

TensorDictParamsImpl::TensorDictParamsImpl(const TensorDict& params)
    : TensorDictParamsImpl(params, TensorDict(params.batch_size())) {}

TensorDictParamsImpl::TensorDictParamsImpl(const TensorDict& params, const TensorDict& buffers)
    : batch_size_(params.batch_size()) {
  TORCH_CHECK_VALUE(buffers.batch_size() == batch_size_, "TensorDictParams: the buffers have batch size ",
                    at::IntArrayRef(buffers.batch_size()), ", expected that of the parameters, ",
                    at::IntArrayRef(batch_size_));
  check_leaves(params, buffers);
  for (const auto& [path, leaf] : params.leaves()) add(path, leaf, /*is_buffer=*/!is_parameter(leaf));
  for (const auto& [path, leaf] : buffers.leaves()) add(path, leaf, /*is_buffer=*/true);
}

void TensorDictParamsImpl::add(std::string_view path, const Tensor& leaf, bool is_buffer) {
  const std::size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  if (dot != std::string_view::npos) {
    level(name).add(path.substr(dot + 1), leaf, is_buffer);
  } else if (is_buffer) {
    register_buffer(name, leaf);
  } else {
    register_parameter(name, leaf, leaf.requires_grad());
  }
}

/// Returns the level below of that name, made if there is none.
TensorDictParamsImpl& TensorDictParamsImpl::level(const std::string& name) {
  if (const auto* known = internal::child_registry(*this).find(name)) {
    return dynamic_cast<TensorDictParamsImpl&>(**known);
  }
  return *register_module(name, std::make_shared<TensorDictParamsImpl>(TensorDict(batch_size_)));
}

TensorDict TensorDictParamsImpl::tree(State state) const {
  TensorDict tree = state_of(*this, state);
  tree.set_batch_size(batch_size_);
  return tree;
}

std::vector<Tensor> TensorDictParamsImpl::parameters(bool recurse) const {
  return distinct(Module::parameters(recurse));
}

std::shared_ptr<Module> TensorDictParamsImpl::clone(const std::optional<at::Device>& device) const {
  const at::NoGradGuard no_grad;
  absl::flat_hash_map<const at::TensorImpl*, Tensor> copies;
  const auto copy_of = [&](const Tensor& leaf) {
    Tensor& copy = copies[leaf.unsafeGetTensorImpl()];
    if (!copy.defined()) {
      copy = leaf.to(device.value_or(leaf.device()), leaf.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
      copy.set_requires_grad(leaf.requires_grad());
    }
    return copy;
  };
  const auto result = std::make_shared<TensorDictParamsImpl>(TensorDict(batch_size_));
  for (const State state : {State::kParameters, State::kBuffers}) {
    for (const auto& [path, leaf] : state_of(*this, state).leaves()) {
      result->add(path, copy_of(leaf), state == State::kBuffers);
    }
  }
  result->train(is_training());
  return result;
}

/// How Cloneable, the base of a parent, clones a child: into the one that the parent's reset() has made.
void TensorDictParamsImpl::clone_(Module& other, const std::optional<at::Device>& device) {
  const auto copy = std::dynamic_pointer_cast<TensorDictParamsImpl>(other.clone(device));
  TORCH_CHECK_TYPE(copy != nullptr, "clone: expected a TensorDictParams to clone into a TensorDictParams, got a ",
                   other.name());
  *this = *copy;
}

void TensorDictParamsImpl::load(torch::serialize::InputArchive& archive) {
  const TensorDict read = internal::saved_tensors(internal::read_state(archive));
  const TensorDict own = state_of(*this, State::kAll);
  const std::string mismatch = describe_mismatch(read, own, {.devices = false});
  TORCH_CHECK_VALUE(mismatch.empty(), "TensorDictParams: the archive does not fit:", mismatch,
                    "\nThe module is unchanged.");
  const at::NoGradGuard no_grad;
  for (const auto& [path, leaf] : own.leaves()) Tensor(leaf).copy_(read[path]);
}

}  // namespace graft
