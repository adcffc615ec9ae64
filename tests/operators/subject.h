// Subject: one operator with its modules, the inputs of all samples, and what it is differentiated by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "functional/tree.h"
#include "tensordict/tensordict.h"
#include "tests/operators/operator.h"

namespace graft::testing {

constexpr std::size_t kSamples = 3;  // and as many modules

/// What an operator is differentiated by: of a function, inputs alone.
struct Variables {
  TensorDict params;
  Tensors inputs;
};

}  // namespace graft::testing

GRAFT_TREE(graft::testing::Variables, params, inputs)

namespace graft::testing {

/// A module with one forward for all.
struct OperatorNet : torch::nn::Module {
  explicit OperatorNet(const Operator& op);

  Tensor forward(const Tensors& inputs) { return op_.forward(*body_, inputs); }

 private:
  const Operator& op_;
  std::shared_ptr<torch::nn::Module> body_;
};

class Subject {
 public:
  explicit Subject(const Operator& op);

  const Operator& op() const { return op_; }
  bool has_parameters() const { return !params_.values().empty(); }
  bool has_derivatives() const { return is_floating_ && !values(0, 0).empty(); }

  // --- What there is

  /// The inputs of each sample.
  const std::vector<Tensors>& samples() const { return samples_; }
  const std::vector<std::shared_ptr<OperatorNet>>& nets() const { return nets_; }
  /// The state of the first module.
  const TensorDict& params() const { return params_; }
  TensorDict fresh_buffers() const;

  /// One for each sample, of the values that are differentiated by.
  const Tensors& direction(std::size_t i) const { return directions_[i]; }
  const std::vector<int64_t>& output_sizes() const { return output_sizes_; }
  /// Of the output's elements, to make it a number.
  const Tensor& weights() const { return weights_; }

  // --- What is differentiated by

  /// Returns those of the inputs.
  Tensors differentiable(const Tensors& inputs) const;
  /// Returns the others.
  Tensors fixed(const Tensors& inputs) const;

  /// Returns the parameters of module m, and of inputs those that are differentiated by.
  Tensors values(std::size_t m, std::size_t i) const { return values(m, samples_[i]); }
  Tensors values(std::size_t m, const Tensors& inputs) const;

  /// The inverse of `values` for the first module.
  Variables variables_like(const Tensors& list) const;

  // --- Calls

  /// Calls module m as it is. \param at values to differentiate at; those of `inputs` count for nothing \param leaves
  /// gets the tensors that hold them
  Tensor plain(const Tensors& at, std::size_t m, Tensors inputs, Tensors* leaves = nullptr) const;

  /// Makes random operators draw what they drew before.
  void seed() const;

  /// Gives modules their state back, which some change in a call.
  void restore() const;

 private:
  struct NetState {
    Tensors parameters, buffers;
  };

  const Operator& op_;
  std::vector<Tensors> samples_, directions_;
  std::size_t differentiable_ = 0;
  std::vector<std::shared_ptr<OperatorNet>> nets_;
  std::vector<NetState> states_;
  TensorDict params_, buffers_;
  bool is_floating_ = false;
  std::vector<int64_t> output_sizes_;
  Tensor weights_;
};

/// Returns the tensors of both.
Tensors values_of(const Variables& variables);

}  // namespace graft::testing
