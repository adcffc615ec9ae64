// Advice on errors of LibTorch that a module's forward meets under a transform, and whose texts name options of Python.
#pragma once

#include <c10/util/Exception.h>

namespace torch::nn {
class Module;
}

namespace graft::internal {

/// Adds to `error`, which `forward` of `module` threw, what to do about it, if it is one of those:
///   - an in-place write to a tensor that is no leaf of the transform, or is not mapped with the input: running
///     statistics of a normalization layer, or another buffer;
///   - a random operator under a vmap that does not say which randomness it wants.
void add_advice(c10::Error& error, torch::nn::Module& module);

/// Returns what `call` returns. \throws what it throws, with advice.
template <typename Call>
decltype(auto) with_advice(torch::nn::Module& module, const Call& call) {
  try {
    return call();
  } catch (c10::Error& error) {
    add_advice(error, module);
    throw;
  }
}

}  // namespace graft::internal
