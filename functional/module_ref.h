// ModuleRef: an argument that takes a module in whatever a program keeps it.
//
//   torch::nn::Linear net(3, 4);
//   from_module(net);      // a holder
//   from_module(*net);     // a module
//   from_module(net.ptr());   // a pointer, of any kind
#pragma once

#include <c10/util/Exception.h>

#include <concepts>
#include <type_traits>

namespace torch::nn {
class Module;
}

namespace graft {
namespace internal {

template <typename Pointer>
auto& module_at(const Pointer& pointer) {
  TORCH_CHECK_VALUE(pointer != nullptr, "expected a module, got a null pointer");
  return *pointer;
}

/// The module behind a reference, a module holder such as torch::nn::Linear, or a pointer, by its own type. A const
/// holder holds a module that is not const, as a const pointer does.
template <typename Handle>
decltype(auto) module_behind(Handle& handle) {
  if constexpr (std::is_base_of_v<torch::nn::Module, std::remove_const_t<Handle>>) {
    return (handle);
  } else if constexpr (requires { handle.ptr(); }) {
    return module_at(handle.ptr());
  } else {
    return module_at(handle);
  }
}

/// A module holder.
template <typename Handle>
concept HoldsModule = requires(const Handle& handle) {
  { *handle.ptr() } -> std::convertible_to<torch::nn::Module&>;
};

/// A pointer to a module, raw or smart.
template <typename Handle>
concept PointsToModule = requires(const Handle& handle) {
  { *handle } -> std::convertible_to<torch::nn::Module&>;
};

}  // namespace internal

/// Refers to a module, for the time of a call.
class ModuleRef {
 public:
  ModuleRef(torch::nn::Module& module) : module_(&module) {}  // NOLINT: stands for the module

  /// \throws c10::ValueError for a null pointer. LibTorch refuses an empty holder.
  template <typename Handle>
  requires(internal::HoldsModule<Handle> || internal::PointsToModule<Handle>) ModuleRef(const Handle& handle)  // NOLINT
      : module_(&internal::module_behind(handle)) {}

  torch::nn::Module& get() const { return *module_; }

 private:
  torch::nn::Module* module_;
};

}  // namespace graft
