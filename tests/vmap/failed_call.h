// FailedCallTest: calls that throw, on modules of several kinds and under each grad mode, and what must hold
// afterwards.
//
//   const Stage kStages[] = {{"BodyThrows", "user", [](World& world) {
//     const ToModuleGuard guard(world.guarded(), world.module());
//     throw std::runtime_error("user");
//   }}};
//   INSTANTIATE_TEST_SUITE_P(Guard, FailedCallTest, ::testing::ValuesIn(cases_of(kStages)), name_of_case);
#pragma once

#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tensordict/tensordict.h"

namespace graft::testing {

using at::Tensor;

/// A module that maps [b, 3] to [b, ...], and can be made to throw before and after its sub-modules run.
struct TestModule : torch::nn::Module {
  virtual Tensor compute(const Tensor& x) = 0;
  Tensor forward(const Tensor& x) {
    if (const auto hook = at_start) hook();  // a copy, for it may set another one
    const Tensor y = compute(x);
    if (const auto hook = at_end) hook();
    return y;
  }
  std::function<void()> at_start, at_end;
};

enum class Kind {
  kNested,     ///< Linears with and without bias, BatchNorm, ties by registration and by assignment
  kRecurrent,  ///< an LSTM and a sub-module under two names
  kAnnotated,  ///< private members behind GRAFT_SLOTS: a tensor, a vector and an optional
  kRaw,        ///< members that Graft does not know, beside a Linear that it knows
};
constexpr Kind kAllKinds[] = {Kind::kNested, Kind::kRecurrent, Kind::kAnnotated, Kind::kRaw};
/// The kinds whose tensors a guard can all reach.
constexpr Kind kReachedKinds[] = {Kind::kNested, Kind::kRecurrent, Kind::kAnnotated};

std::shared_ptr<TestModule> make_module(Kind kind);

/// A module, other leaves for it, and what is right with its own tensors and with these, found by plain forward and
/// backward passes of a second module.
class World {
 public:
  explicit World(Kind kind);

  Kind kind() const { return kind_; }
  TestModule& module() { return *module_; }
  const Tensor& x() const { return x_; }  ///< [4, 3]
  /// A leaf for every name.
  const TensorDict& leaves() const { return leaves_; }
  /// The leaves that a guard accepts: all, but of a raw module those of its sub-module.
  TensorDict guarded() const;
  /// The leaves to differentiate: parameters, one name for each tensor.
  const TensorDict& params() const { return params_; }
  /// Returns `tree` with copies of its tensors, one for each.
  static TensorDict copy_of(const TensorDict& tree);

  /// Checks forward, functional_call, a guard, grad, and vmap of grad, where the kind allows them.
  void expect_right_values();

 private:
  Kind kind_;
  std::shared_ptr<TestModule> module_;
  Tensor x_;
  TensorDict leaves_, params_;
  Tensor own_output_, leaf_output_;
  TensorDict sample_gradients_;  ///< [4, ...], of `loss_of` one sample
};

/// The loss of one sample [3] or of a batch [b, 3] with these parameters.
Tensor loss_of(TestModule& module, const TensorDict& params, const Tensor& x);

/// One way to fail.
struct Stage {
  std::string name;
  std::string thrown;  ///< part of "type: text" of the exception
  std::function<void(World&)> fail;
  std::vector<Kind> kinds{std::begin(kAllKinds), std::end(kAllKinds)};
};

enum class Mode { kGrad, kNoGrad, kInference };

struct Case {
  Stage stage;
  Kind kind;
  Mode mode;
};

inline void PrintTo(const Case& shown, std::ostream* stream) { *stream << shown.stage.name; }

/// Every stage with every kind of module that it names and under each mode.
std::vector<Case> cases_of(const std::vector<Stage>& stages);
std::string name_of_case(const ::testing::TestParamInfo<Case>& info);

/// Returns "type: text" of what `call` throws.
std::string thrown_by(const std::function<void()>& call);

class FailedCallTest : public ::testing::TestWithParam<Case> {
 protected:
  static void SetUpTestSuite();
};

}  // namespace graft::testing
