// vmap: a function of one sample as a function of many.
//
//   auto dot = [](const Tensor& a, const Tensor& b) { return a.dot(b); };
//   Tensor y = vmap(dot)(x, z);                                     // [b, n], [b, n] -> [b]
//   auto row = vmap(dot, {.in_dims = {std::nullopt, 0}});
//   Tensor p = vmap(row, {.in_dims = {0, std::nullopt}})(x, z);     // [a, n], [b, n] -> [a, b]
//   TensorDict g = vmap(grad(loss), {.in_dims = {std::nullopt, 0}})(params, x);   // a gradient for each sample
//
// f sees its arguments without the mapped dim and runs once: each operator works on all samples. The result equals the
// stack of f's results for one sample at a time. vmap, grad and ordinary autograd nest in any order.
//
// It is not for a function that decides by the values of a mapped tensor (item(), nonzero(), boolean masks): LibTorch
// refuses these.
// Python: torch.func.vmap, jax.vmap.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "functional/internal/transform_level.h"
#include "functional/tree.h"
#include "vmap/fallback.h"
#include "vmap/in_dims.h"

namespace graft {

/// The options of `vmap`.
struct VmapOptions {
  /// The dim of each argument to map over; one for all tensors of an argument, or one for each (vmap/in_dims.h). For a
  /// TensorDict with batch dims it is one of these; inside f its batch_size lacks that dim. For one without it is a dim
  /// of each leaf.
  InDims in_dims = 0;

  /// Where the mapped dim goes in each result. In a TensorDict with k batch dims it becomes a batch dim, from -(k + 1)
  /// to k; without batch dims 0 makes the first one, and any other dim is inserted in each leaf, beside no batch dim.
  /// std::nullopt: the result does not depend on mapped values and is returned once.
  OutDims out_dims = 0;

  /// What random operators do.
  Randomness randomness = Randomness::kError;

  /// So many samples at a time, std::nullopt for all at once: a smaller number saves memory. With Randomness::kSame all
  /// chunks draw the same numbers from the default generators (one that f passes itself draws on). What is returned
  /// unmapped is that of the first chunk.
  std::optional<int64_t> chunk_size = std::nullopt;

  /// What happens to an operator that LibTorch can only run as a loop over the samples.
  Fallback fallback = Fallback::kWarn;
};

namespace internal {

/// The dims of one part: one for all its tensors, or one for each leaf.
struct PartDims {
  MappedDim dim;
  std::vector<MappedDim> of_leaves;  ///< empty if there is one for all
};

/// The arguments of one call of a mapped function, checked.
class MappedArguments {
 public:
  /// \throws c10::ValueError as `vmap` says.
  MappedArguments(const VmapOptions& options, const ArgumentParts& arguments);

  /// How many samples there are.
  int64_t size() const { return size_; }
  const std::vector<TreePart>& parts() const { return parts_; }
  const std::vector<PartDims>& dims() const { return dims_; }

 private:
  std::vector<TreePart> parts_;
  std::vector<PartDims> dims_;  ///< of each part
  int64_t size_;
};

/// The untyped core of one call; the level is open during its life.
class VmapCall {
 public:
  /// Takes the mapped arguments into a level.
  VmapCall(const VmapOptions& options, const MappedArguments& arguments, int64_t size);

  /// Takes the results out of the level. \throws c10::ValueError as `vmap` says.
  void leave(const OutDims& out_dims, const ArgumentParts& results) const;

 private:
  VmapLevel level_;
  std::optional<FallbackError> no_fallback_;
};

/// A call in several, of some samples each.
class ChunkedCall {
 public:
  ChunkedCall(const VmapOptions& options, const MappedArguments& arguments);

  /// Puts the next samples in the places of the arguments, and returns how many; 0 after the last.
  int64_t next();

  /// Makes the results of all chunks, in order, those of the first.
  void join(const std::vector<ArgumentParts>& results) const;

 private:
  const VmapOptions& options_;
  const MappedArguments& arguments_;
  std::vector<std::variant<Tensor, TensorDict>> originals_;
  std::vector<std::pair<at::Generator, Tensor>> generators_;  ///< with their states before the first chunk
  int64_t begin_ = 0;
};

template <class Result>
struct IsTuple : std::false_type {};
template <class... Elements>
struct IsTuple<std::tuple<Elements...>> : std::true_type {};
template <class First, class Second>
struct IsTuple<std::pair<First, Second>> : std::true_type {};

/// Returns the parts of each value that has an out_dim of its own.
template <class Result>
ArgumentParts collect_results(Result& result) {
  if constexpr (IsTuple<Result>::value) {
    return collect_each(result);
  } else {
    return {collect_parts(result)};
  }
}

}  // namespace internal

/// Returns a function that maps f over a dim of its arguments.
///
/// f: `(args...) -> results`; the result: `(args... with a dim of size b) -> results with a dim of size b`.
///
/// \param f A function that can be called as const and returns a tree of tensors (functional/tree.h).
/// \param options Over which dims, into which dims, and how random operators draw.
/// \throws c10::ValueError from the call, if the number of in_dims or out_dims is not that of the arguments or results,
///     no argument is mapped, a mapped one holds no tensor, a dim is out of range, the sizes of the mapped dims differ
///     (each is listed with an example), chunk_size is not positive, or a result depends on mapped values although its
///     out_dim is std::nullopt.
/// \throws c10::NotImplementedError with Fallback::kError, naming the operator.
/// Python: torch.func.vmap.
template <class F>
auto vmap(F f, VmapOptions options = {}) {
  return [f = std::move(f), options = std::move(options)]<class... Args>(Args&&... args) {
    internal::HeldArguments<Args...> arguments(std::forward<Args>(args)...);
    const internal::MappedArguments mapped(options, internal::collect_each(arguments));
    const auto call_with = [&](int64_t size) {
      const internal::VmapCall call(options, mapped, size);
      auto result = internal::call_with(f, arguments);
      static_assert(Tree<decltype(result)>, "vmap: the function must return tensors alone, see functional/tree.h");
      call.leave(options.out_dims, internal::collect_results(result));
      return result;
    };
    if (!options.chunk_size || *options.chunk_size >= mapped.size()) return call_with(mapped.size());
    internal::ChunkedCall chunks(options, mapped);
    std::vector<decltype(call_with(0))> results;
    while (const int64_t size = chunks.next()) results.push_back(call_with(size));
    std::vector<internal::ArgumentParts> parts;
    for (auto& result : results) parts.push_back(internal::collect_results(result));
    chunks.join(parts);
    return std::move(results.front());
  };
}

}  // namespace graft
