// GRAFT_SLOTS: one line that tells Graft where a module of yours keeps its parameters.
//
// A LibTorch module holds each parameter twice: registered under a name, and in a data member that `forward` reads.
// To swap a parameter both have to be set. Graft knows the members of every torch::nn module; for your own write,
// outside any namespace and after the class,
//
//   struct NetImpl : torch::nn::Module { ... private: torch::Tensor w_; std::vector<torch::Tensor> layers_; };
//   GRAFT_SLOTS(NetImpl, w_, layers_)
//
// Members may be private, and may be a Tensor, or a vector, array or optional of Tensor. List every member that holds a
// registered parameter or buffer, of this or of any other module (`out_ = embedding->weight`); which is which is found
// by looking. One that is not listed keeps the old tensor under a guard. Members of base classes that have slots of
// their own, and sub-modules, need no mention.
//
//   GRAFT_SLOTS(NetImpl)
//
// alone says that forward reads no members, but what is registered: `named_parameters()["w"]`.
#pragma once

#include "functional/internal/member_list.h"
#include "functional/internal/module_slots.h"

/// Tells Graft which members of the module class `Type` hold registered tensors. See the head of this file.
#define GRAFT_SLOTS(Type, ...) GRAFT_INTERNAL_SLOTS(Type, __COUNTER__, __VA_ARGS__)

// The rest is how the macro works. Access is not checked for the arguments of an explicit instantiation: that is what
// lets a line outside the class name its private members.
#define GRAFT_INTERNAL_SLOTS(Type, number, ...) GRAFT_INTERNAL_SLOTS_NUMBERED(Type, number, __VA_ARGS__)
#define GRAFT_INTERNAL_SLOTS_NUMBERED(Type, number, ...)                                                               \
  namespace graft::internal {                                                                                          \
  namespace {                                                                                                          \
  struct SlotNames##number {                                                                                           \
    static constexpr std::string_view kList = #__VA_ARGS__;                                                            \
  };                                                                                                                   \
  }                                                                                                                    \
  template struct SlotRegistration<Type,                                                                               \
                                   SlotNames##number __VA_OPT__(, GRAFT_INTERNAL_MEMBER_POINTERS(Type, __VA_ARGS__))>; \
  }
