#include "functional/internal/module_registry.h"

namespace graft::internal {
namespace {

// `parameters_` is protected: a derived class may name it. `buffers_` and `children_` are private: the arguments of an
// explicit instantiation may name them, and a friend function hands the pointer out.
struct ParametersAccess : torch::nn::Module {
  static constexpr auto pointer = &ParametersAccess::parameters_;
};

template <typename Tag, typename Tag::Pointer pointer>
struct Expose {
  friend typename Tag::Pointer member(Tag) { return pointer; }
};

struct Buffers {
  using Pointer = TensorRegistry torch::nn::Module::*;
  friend Pointer member(Buffers);
};
template struct Expose<Buffers, &torch::nn::Module::buffers_>;

struct Children {
  using Pointer = ChildRegistry torch::nn::Module::*;
  friend Pointer member(Children);
};
template struct Expose<Children, &torch::nn::Module::children_>;

}  // namespace

TensorRegistry& parameter_registry(torch::nn::Module& module) { return module.*ParametersAccess::pointer; }
TensorRegistry& buffer_registry(torch::nn::Module& module) { return module.*member(Buffers{}); }
ChildRegistry& child_registry(torch::nn::Module& module) { return module.*member(Children{}); }

}  // namespace graft::internal
