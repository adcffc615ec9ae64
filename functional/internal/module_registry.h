// The three registries of a torch::nn::Module, which LibTorch does not let others edit.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>

namespace graft::internal {

using TensorRegistry = torch::OrderedDict<std::string, at::Tensor>;
using ChildRegistry = torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// `parameters_` is protected: a derived class may name it. `buffers_` and `children_` are private: the arguments of an
// explicit instantiation may name them, and a friend function hands the pointer out.
struct ParametersAccess : torch::nn::Module {
  static constexpr auto kPointer = &ParametersAccess::parameters_;
};

template <typename Tag, typename Tag::Pointer pointer>
struct PrivateAccess {
  friend constexpr typename Tag::Pointer member_pointer(Tag) { return pointer; }
};

struct BuffersTag {
  using Pointer = TensorRegistry torch::nn::Module::*;
  friend constexpr Pointer member_pointer(BuffersTag);
};
template struct PrivateAccess<BuffersTag, &torch::nn::Module::buffers_>;

struct ChildrenTag {
  using Pointer = ChildRegistry torch::nn::Module::*;
  friend constexpr Pointer member_pointer(ChildrenTag);
};
template struct PrivateAccess<ChildrenTag, &torch::nn::Module::children_>;

inline TensorRegistry& parameter_registry(torch::nn::Module& module) { return module.*ParametersAccess::kPointer; }
inline TensorRegistry& buffer_registry(torch::nn::Module& module) { return module.*member_pointer(BuffersTag{}); }
inline ChildRegistry& child_registry(torch::nn::Module& module) { return module.*member_pointer(ChildrenTag{}); }

}  // namespace graft::internal
