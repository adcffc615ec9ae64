// ByGraft: an operator as a function of parameters, inputs and buffers, and its transforms.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "tensordict/tensordict.h"
#include "tests/operators/operator.h"
#include "tests/operators/subject.h"
#include "vmap/stacked_state.h"
#include "vmap/vmap.h"

namespace graft::testing {

class ByGraft {
 public:
  /// \param subject outlives this
  explicit ByGraft(const Subject& subject) : subject_(subject) {}

  Randomness randomness() const { return subject_.op().is_random ? Randomness::kSame : Randomness::kError; }

  /// The operator as a function.
  Tensor call(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) const;

  /// Of what is differentiated by. \param of gives the inputs that are not
  Tensor call(const Variables& variables, const Tensors& of, const TensorDict& buffers) const;

  Tensor loss(const Variables& variables, const Tensors& of, const TensorDict& buffers) const;

  Variables gradients_of(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers) const;

  /// The derivative along a direction.
  Tensor push(const TensorDict& params, const Tensors& inputs, const TensorDict& buffers, const Variables& along) const;

  /// Maps f(params, inputs, buffers) over samples of the inputs for which is_mapped(position), or over modules.
  template <class F>
  auto map_samples(const F& f, const std::function<bool(std::size_t)>& is_mapped) const {
    Tensors inputs;
    std::vector<MappedDims> dims;
    for (std::size_t k = 0; k < subject_.samples()[0].size(); ++k) {
      Tensors of_all;
      for (const Tensors& sample : subject_.samples()) of_all.push_back(sample[k]);
      inputs.push_back(is_mapped(k) ? torch::stack(of_all) : subject_.samples()[0][k]);
      dims.push_back(is_mapped(k) ? MappedDims(0) : MappedDims(std::nullopt));
    }
    return vmap(f, options({std::nullopt, MappedDims(dims), std::nullopt}))(subject_.params(), inputs,
                                                                            subject_.fresh_buffers());
  }
  template <class F>
  auto map_modules(const F& f) const {
    subject_.restore();
    const auto [params, buffers] = stack_module_state(subject_.nets());
    const MappedDims of_buffers = buffers.values().empty() ? MappedDims(std::nullopt) : MappedDims(0);
    return vmap(f, options({0, std::nullopt, of_buffers}))(params, subject_.samples()[0], buffers);
  }
  template <class F>
  auto map_directions(const F& f) const {
    Tensors columns;
    for (std::size_t k = 0; k < subject_.direction(0).size(); ++k) {
      columns.push_back(torch::stack({subject_.direction(0)[k], subject_.direction(1)[k], subject_.direction(2)[k]}));
    }
    return vmap(f, options(0))(columns);
  }

  /// f of the first module's state and the first sample.
  template <class F>
  auto of_first(const F& f) const {
    return [this, f] { return f(subject_.params(), subject_.samples()[0], subject_.fresh_buffers()); };
  }

  /// A function of a list of tensors in place of the first module's parameters and the first sample.
  template <class F>
  auto of_list(const F& f) const {
    return [this, f, buffers = subject_.fresh_buffers()](const Tensors& list) {
      return f(subject_.variables_like(list), subject_.samples()[0], buffers);
    };
  }

 private:
  VmapOptions options(InDims in_dims) const { return {.in_dims = std::move(in_dims), .randomness = randomness()}; }

  const Subject& subject_;
};

}  // namespace graft::testing
